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
