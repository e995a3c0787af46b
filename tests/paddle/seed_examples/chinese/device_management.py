import paddle

# 检查 MPS 可用性
print(f"MPS 已编译: {paddle.is_compiled_with_mps()}")
print(f"MPS 可用: {paddle.mps.is_available()}")
print(f"设备数量: {paddle.mps.device_count()}")

# 设置当前设备
paddle.mps.set_device(0)

# 获取当前设备
current_device = paddle.mps.current_device()
print(f"当前设备: {current_device}")

# 获取设备属性
props = paddle.mps.get_device_properties()
print(f"设备名称: {paddle.mps.get_device_name()}")
print(f"总内存: {props.total_memory / (1024**3):.2f} GB")
