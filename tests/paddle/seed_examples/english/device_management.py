import paddle

# Check MPS availability
print(f"MPS compiled: {paddle.is_compiled_with_mps()}")
print(f"MPS available: {paddle.mps.is_available()}")
print(f"Device count: {paddle.mps.device_count()}")

# Set current device
paddle.mps.set_device(0)

# Get current device
current_device = paddle.mps.current_device()
print(f"Current device: {current_device}")

# Get device properties
props = paddle.mps.get_device_properties()
print(f"Device name: {paddle.mps.get_device_name()}")
print(f"Total memory: {props.total_memory / (1024**3):.2f} GB")
