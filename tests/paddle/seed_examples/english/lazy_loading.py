# This works even if paddle.mps module doesn't exist yet
import paddle
if paddle.mps.is_available():  # Lazy loaded
    ...
