// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/kernel_name.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark::kernel_name_test {
namespace {

TEST(KernelName, isTheTemplateAndWhatItIsMadeFor) {
  // As CUPTI told it of a step of GPT-2 (tests/gpu/recorded/real-gpt2.measured.trace.gz).
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
  EXPECT_EQ(KernelName("_ZN3lib3varE"), "var");       // no function
  EXPECT_EQ(KernelName("_ZNK3lib3Foo3runEv"), "run() const");
}

TEST(KernelName, leavesOutParametersThatAreFunctionsThemselves) {
  EXPECT_EQ(KernelName("_Z3MapIfEvPFT_S0_E"), "Map<float>");  // void Map<float>(float (*)(float))
}

TEST(KernelName, tellsInWhichFunctionALambdaIs) {
  // void at::vectorized<4, at::sqrt_kernel(at::Iterator&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(int)
  EXPECT_EQ(KernelName("_ZN2at10vectorizedILi4EZZNS_11sqrt_kernelERNS_8IteratorEENKUlvE0_clEvEUlfE_EEvi"),
            "vectorized<4, sqrt_kernel(Iterator&)::{lambda()#2}::operator()() const::{lambda(float)#1}>");
}

TEST(KernelName, ofTensOfThousandsOfLettersTakesNoStack) {
  // void f<A<int, int>, A<A<int, int>, A<int, int>>, ..., g()::{lambda(...)#1}>(): each type is twice the one before.
  std::string symbol = "_Z1fI1AIiiE";
  for (const char last : {'1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B'}) {
    symbol += std::string("S0_IS") + last + "_S" + last + "_E";
  }
  const std::string name = KernelName(symbol + "Z1gvEUlSC_E_Evv");
  EXPECT_GT(name.size(), 30'000U);
  EXPECT_TRUE(name.starts_with("f<A<int, int>, A<A<int, int>, A<int, int>>, ")) << name.substr(0, 80);
  EXPECT_TRUE(name.ends_with(">>)#1}>")) << name.substr(name.size() - 80);
}

TEST(KernelName, staysWhereItIsNotMangled) {
  for (const char* name : {"nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "i", "", "_Z", "_ZN"}) {
    EXPECT_EQ(KernelName(name), name);
  }
}

}  // namespace
}  // namespace tidemark::kernel_name_test
