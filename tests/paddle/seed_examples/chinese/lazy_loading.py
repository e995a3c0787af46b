# 即使 paddle.mps 模块尚不存在，这也能工作
import paddle
if paddle.mps.is_available():  # 延迟加载
    ...
