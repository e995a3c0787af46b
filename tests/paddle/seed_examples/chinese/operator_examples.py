import paddle
import numpy as np

paddle.mps.set_device(0)

# 逐元素运算
x = paddle.to_tensor([1.0, 2.0, 3.0], place='mps')
y = paddle.to_tensor([4.0, 5.0, 6.0], place='mps')

# 加法
z = paddle.add(x, y)  # 或 z = x + y

# 乘法
w = paddle.multiply(x, y)  # 或 w = x * y

# 一元运算
abs_x = paddle.abs(x)
exp_x = paddle.exp(x)
log_x = paddle.log(x + 1.0)  # 加 1 以避免 log(0)
sqrt_x = paddle.sqrt(x)

# 激活函数
relu_x = paddle.nn.functional.relu(x)
sigmoid_x = paddle.nn.functional.sigmoid(x)
