// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/kernel_name.h"

#include <gtest/gtest.h>

namespace tidemark::kernel_name_test {
namespace {

TEST(KernelName, isTheTemplateAndWhatItIsMadeFor) {
  // As CUPTI told it of the first kernel of a step of GPT-2.
  EXPECT_EQ(KernelName("_ZN8tidemark7kernels4cuda16ElementsOnDeviceINS1_45_GLOBAL__N__5fcffa5a_12_pointwise_cu_"
                       "590f490717AccumulateElementIdEEEEvlT_"),
            "ElementsOnDevice<AccumulateElement<double>>");
  // Of PyTorch: void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>,
  // std::array<char*, 1ul> >(int, ...).
  EXPECT_EQ(
      KernelName("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"),
      "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>");
}

TEST(KernelName, ofOneWithoutATemplateIsItsName) {
  EXPECT_EQ(KernelName("_ZN3lib4FillEPfi"), "Fill");  // lib::Fill(float*, int)
}

TEST(KernelName, leavesOutParametersThatAreFunctionsThemselves) {
  EXPECT_EQ(KernelName("_Z3MapIfEvPFT_S0_E"), "Map<float>");  // void Map<float>(float (*)(float))
}

TEST(KernelName, staysWhereItIsNotMangled) {
  for (const char* name : {"nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "i", "", "_Z", "_ZN"}) {
    EXPECT_EQ(KernelName(name), name);
  }
}

}  // namespace
}  // namespace tidemark::kernel_name_test
