import paddle

# 检查内存使用情况
allocated = paddle.mps.memory_allocated()
reserved = paddle.mps.memory_reserved()
print(f"已分配: {allocated / (1024**2):.2f} MB")
print(f"已保留: {reserved / (1024**2):.2f} MB")

# 清空缓存
paddle.mps.empty_cache()

# 跟踪峰值内存
max_allocated = paddle.mps.max_memory_allocated()
print(f"峰值已分配: {max_allocated / (1024**2):.2f} MB")

# 重置峰值统计
paddle.mps.reset_max_memory_allocated()
