import paddle
import numpy as np

paddle.mps.set_device(0)

# Elementwise operations
x = paddle.to_tensor([1.0, 2.0, 3.0], place='mps')
y = paddle.to_tensor([4.0, 5.0, 6.0], place='mps')

# Addition
z = paddle.add(x, y)  # or z = x + y

# Multiplication
w = paddle.multiply(x, y)  # or w = x * y

# Unary operations
abs_x = paddle.abs(x)
exp_x = paddle.exp(x)
log_x = paddle.log(x + 1.0)  # Add 1 to avoid log(0)
sqrt_x = paddle.sqrt(x)

# Activation functions
relu_x = paddle.nn.functional.relu(x)
sigmoid_x = paddle.nn.functional.sigmoid(x)
