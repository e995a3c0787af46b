import paddle

# Check memory usage
allocated = paddle.mps.memory_allocated()
reserved = paddle.mps.memory_reserved()
print(f"Allocated: {allocated / (1024**2):.2f} MB")
print(f"Reserved: {reserved / (1024**2):.2f} MB")

# Clear cache
paddle.mps.empty_cache()

# Track peak memory
max_allocated = paddle.mps.max_memory_allocated()
print(f"Peak allocated: {max_allocated / (1024**2):.2f} MB")

# Reset peak statistics
paddle.mps.reset_max_memory_allocated()
