// MatrixUnit<T>: the matrix unit of the device that is compiled for.
//
//   NVIDIA, fp16 from sm_70 on, bf16 and tf32 from sm_80 on   matrix_unit_sm70.h
//   AMD, CDNA 2 and newer                                     matrix_unit_cdna.h
//   all others: the CPU backend, RDNA, older NVIDIA devices   software_unit.h
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/software_unit.h"

#if defined(GPU_BACKEND_CUDA)
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit_sm70.h"
#elif defined(GPU_BACKEND_HIP)
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit_cdna.h"
#endif
