// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/probe.h"

namespace tidemark {
namespace {

// Values of cudaError_t, which are part of CUDA's interface and do not change. They stand here as numbers so that this
// reasoning is compiled and tested where there is no CUDA toolkit.
constexpr int kErrorStubLibrary = 34;
constexpr int kErrorInsufficientDriver = 35;
constexpr int kErrorNoDevice = 100;

}  // namespace

// Without a driver cudaDriverGetVersion succeeds and says 0, whereas cudaGetDeviceCount gives the same error 35 as for
// a driver that is merely too old: so the version is asked first.
std::string WhyNoDevice(const RuntimeAnswers& answers) {
  if (answers.count_error == kErrorStubLibrary) {
    return "no driver: the CUDA toolkit's stub of libcuda comes before any real one on the library path";
  }
  if (answers.driver_version == 0) {
    return "no driver: NVIDIA's kernel driver and its libcuda are not installed";
  }
  if (answers.count_error == kErrorInsufficientDriver) {
    return "the installed NVIDIA driver is older than the CUDA runtime in this program needs";
  }
  if (answers.count_error == kErrorNoDevice || (answers.count_error == 0 && answers.count == 0)) {
    return "no device: there is a driver, but it shows this process no GPU";
  }
  if (answers.count_error != 0) {
    return "the CUDA runtime refuses to list devices with error " + std::to_string(answers.count_error);
  }
  return {};
}

}  // namespace tidemark
