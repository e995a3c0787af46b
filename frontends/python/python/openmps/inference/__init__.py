"""``paddle.inference`` without Paddle: its names, on the executor of openmps.

Programs of both forms run, ``inference.json`` and ``.pdmodel``, with their ``.pdiparams``::

    from openmps.inference import Config, create_predictor

    config = Config("inference.json", "inference.pdiparams")
    predictor = create_predictor(config)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(image)
    predictor.run()
    result = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()

Where Paddle is installed, ``paddle.inference.Config.enable_custom_device("mps")`` leads here (:mod:`openmps.paddle.inference`).
"""

from openmps.inference.config import Config, DataType, PlaceType, PrecisionType
from openmps.inference.predictor import Predictor, PredictorPool, Tensor, create_predictor, get_num_bytes_of_data_type, get_version

__all__ = [
    "Config",
    "DataType",
    "PlaceType",
    "PrecisionType",
    "Predictor",
    "PredictorPool",
    "Tensor",
    "create_predictor",
    "get_num_bytes_of_data_type",
    "get_version",
]
