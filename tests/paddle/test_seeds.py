"""The examples that the project began from, as they were written."""


def test_basic_usage(program):
    output = program(
        """
        import paddle

        # Check if MPS is available
        if paddle.is_compiled_with_mps() and paddle.mps.is_available():
            print(f"MPS available! Device count: {paddle.mps.device_count()}")

            # Set device
            paddle.mps.set_device(0)

            # Create tensors on MPS
            x = paddle.randn([2, 3], dtype='float32', place='mps')
            y = paddle.randn([2, 3], dtype='float32', place='mps')

            # Perform operations
            z = x + y
            w = paddle.exp(x)

            # Convert back to CPU for NumPy conversion
            result = z.numpy()
            print(result)
        """
    )
    assert "MPS available! Device count: 1" in output and output.count("[") == 3


def test_device_management(program):
    output = program(
        """
        import paddle

        print(f"MPS compiled: {paddle.is_compiled_with_mps()}")
        print(f"MPS available: {paddle.mps.is_available()}")
        print(f"Device count: {paddle.mps.device_count()}")
        paddle.mps.set_device(0)
        current_device = paddle.mps.current_device()
        print(f"Current device: {current_device}")
        props = paddle.mps.get_device_properties()
        print(f"Device name: {paddle.mps.get_device_name()}")
        print(f"Total memory: {props.total_memory / (1024**3):.2f} GB")
        """
    )
    assert "MPS compiled: True" in output and "Current device: 0" in output and "GB" in output


def test_memory_management(program):
    output = program(
        """
        import paddle

        allocated = paddle.mps.memory_allocated()
        reserved = paddle.mps.memory_reserved()
        print(f"Allocated: {allocated / (1024**2):.2f} MB")
        print(f"Reserved: {reserved / (1024**2):.2f} MB")
        paddle.mps.empty_cache()
        max_allocated = paddle.mps.max_memory_allocated()
        print(f"Peak allocated: {max_allocated / (1024**2):.2f} MB")
        paddle.mps.reset_max_memory_allocated()
        """
    )
    assert output.count("MB") == 3


def test_operator_examples(program):
    output = program(
        """
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

        a, b = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
        expected = [a + b, a * b, abs(a), np.exp(a), np.log(a + 1), np.sqrt(a), np.maximum(a, 0), 1 / (1 + np.exp(-a))]
        for got, want in zip([z, w, abs_x, exp_x, log_x, sqrt_x, relu_x, sigmoid_x], expected):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        assert (paddle.subtract(x, y).numpy() == a - b).all()
        np.testing.assert_allclose(paddle.divide(x, y).numpy(), a / b, rtol=1e-6)
        print("all right")
        """
    )
    assert output.strip() == "all right"
