// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl.h"

namespace tidemark {
namespace {

Error NoCuda() {
  return {ErrorCode::machine_cannot, "", "this program was built without CUDA, so its ranks use no GPU",
          "build it where there is a CUDA 13 toolkit"};
}

}  // namespace

Result<std::unique_ptr<World>> OpenNcclWorld(World&, const NcclOptions&) { return NoCuda(); }

Result<std::unique_ptr<World>> OpenNcclWorldFromEnvironment(const Launcher&, const NcclOptions&) { return NoCuda(); }

Result<std::string> NcclVersion() { return NoCuda(); }

}  // namespace tidemark
