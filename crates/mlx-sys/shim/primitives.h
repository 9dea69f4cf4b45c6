// MLX's fast primitives; its own header has no guard.
#pragma once
#include "mlx/fast_primitives.h"
