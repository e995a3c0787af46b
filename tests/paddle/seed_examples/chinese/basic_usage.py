import paddle

# 检查 MPS 是否可用
if paddle.is_compiled_with_mps() and paddle.mps.is_available():
    print(f"MPS 可用！设备数量: {paddle.mps.device_count()}")

    # 设置设备
    paddle.mps.set_device(0)

    # 在 MPS 上创建张量
    x = paddle.randn([2, 3], dtype='float32', place='mps')
    y = paddle.randn([2, 3], dtype='float32', place='mps')

    # 执行操作
    z = x + y
    w = paddle.exp(x)

    # 转换回 CPU 以便转换为 NumPy
    result = z.numpy()
    print(result)
