// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profiler/capture/heap.h"
#include "profiler/comm/gpu_transport.h"
#include "profiler/comm/gpu_use_cuda.h"
#include "profiler/comm/nccl_communicator_cuda.h"
#include "profiler/comm/nccl_library_cuda.h"
#include "profiler/comm/staged.h"

namespace tidemark {
namespace {

/// "machine, UUID": of a MIG partition its own, by which NCCL tells GPUs apart as well.
std::string NameOfGpu(int gpu) {
  std::array<char, 256> machine{};
  gethostname(machine.data(), machine.size() - 1);
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, gpu);
  std::string name = fmt::format("{}, ", machine.data());
  for (const char byte : properties.uuid.bytes) {
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

/// Spreads bytes of rank 0 to the others.
Status Spread(Communicator& group, void* bytes, std::int64_t size) {
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                  group.Begin({CollectiveKind::broadcast, Reduction::none, DType::u8, size, bytes, bytes, 0}));
  return group.Finish(ticket);
}

constexpr std::int64_t kIdBytes = sizeof(ncclUniqueId);

/// As nccl-tests do over MPI: the first rank's id, and then all at once.
NcclPeers::Joined Meet(const NcclTools& tools, Communicator& group) {
  ncclUniqueId id{};
  ncclResult_t result = group.rank() == 0 ? tools.nccl.make_id(&id) : ncclSuccess;
  if (!Spread(group, &id, kIdBytes).ok()) {
    result = ncclRemoteError;
  }
  return result == ncclSuccess ? NcclPeers::Join(tools, id, group.rank(), group.size())
                               : NcclPeers::Joined{nullptr, result};
}

NcclMeeting MeetingOver(const NcclTools& tools, const std::shared_ptr<Communicator>& group) {
  return {[&tools, group] { return Meet(tools, *group); },
          [group](std::int64_t peer, std::int64_t tag, const ncclUniqueId& id) {
            return group->Send({peer, tag, DType::u8, kIdBytes}, &id);
          },
          [group](std::int64_t peer, std::int64_t tag) -> Result<ncclUniqueId> {
            ncclUniqueId id{};
            TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group->Receive({peer, tag, DType::u8, kIdBytes}, &id));
            TIDEMARK_TRY(group->Finish(ticket));
            return id;
          }};
}

DeviceCopies Copies() {
  return {[](const void* device, void* host, Bytes bytes, void* stream) {
            return CopyAndWait(host, device, bytes, cudaMemcpyDeviceToHost, stream);
          },
          [](const void* host, void* device, Bytes bytes, void* stream) {
            return CopyAndWait(device, host, bytes, cudaMemcpyHostToDevice, stream);
          }};
}

class NcclWorld final : public World {
 public:
  NcclWorld(World& boot, NcclTools tools, GpuTransport transport, std::int64_t ranks_on_gpu)
      : boot_(boot),
        ranks_on_gpu_(ranks_on_gpu),
        tools_(std::move(tools)),
        transport_(transport),
        how_(boot.size() == 1 ? "" : Describe(transport, tools_.nccl.version)) {
    tools_.staged = &staged_;
  }
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  std::int64_t rank() const override { return boot_.rank(); }
  std::int64_t size() const override { return boot_.size(); }
  std::int64_t ranks_here() const override { return boot_.ranks_here(); }
  std::int64_t ranks_on_gpu() const override { return ranks_on_gpu_; }
  std::string_view how() const override { return how_; }
  Bytes staging() const override { return staged_; }
  double Highest(double value) override { return boot_.Highest(value); }
  double Sum(double value) override { return boot_.Sum(value); }
  std::vector<std::string> GatherTexts(const std::string& text) override { return boot_.GatherTexts(text); }
  void Abort(int exit_code) override { boot_.Abort(exit_code); }

  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    const HeapScope scope(HeapOwner::communication);
    TIDEMARK_ASSIGN(std::unique_ptr<Communicator> group, boot_.Split(colour));
    if (transport_ == GpuTransport::staged) {
      return MakeStagedCommunicator(std::move(group), Copies());
    }
    const std::int64_t rank = group->rank(), size = group->size();
    return std::unique_ptr<Communicator>(
        std::make_unique<NcclCommunicator>(tools_, rank, size, MeetingOver(tools_, std::move(group))));
  }

 private:
  World& boot_;
  std::int64_t ranks_on_gpu_;
  Bytes staged_;
  NcclTools tools_;
  GpuTransport transport_;
  std::string how_;
};

constexpr int kSharesGpus = NCCL_VERSION(2, 30, 0);  // has NCCL_MULTI_RANK_GPU_ENABLE

/// Whether NCCL reduces a number over all ranks, some of which share a GPU. Where it does not take them it says so when
/// they meet; ranks for which a GPU has no room lock up, so it has a minute.
Result<bool> TakesSharedGpus(NcclTools tools, World& boot) {
  tools.patience = std::min(tools.patience, Nanos(60'000'000'000));
  TIDEMARK_ASSIGN(std::unique_ptr<Communicator> host, boot.Split(0));
  const std::int64_t rank = host->rank(), size = host->size();
  void* number = nullptr;
  bool takes = cudaMalloc(&number, sizeof(float)) == cudaSuccess;
  if (boot.Highest(takes ? 0 : 1) == 0) {
    NcclCommunicator all(tools, rank, size, MeetingOver(tools, std::move(host)));
    const auto begun = all.Begin({CollectiveKind::all_reduce, Reduction::sum, DType::fp32, 1, number, number});
    takes = begun.ok() && all.Finish(*begun).ok();
  }
  cudaFree(number);
  return boot.Highest(takes ? 0 : 1) == 0;
}

/// MPI's colours are ints that are not negative. Ranks have the same program, and so the same hash.
std::int64_t ColourOf(const std::string& gpu) {
  return static_cast<std::int64_t>(std::hash<std::string>()(gpu) & static_cast<std::size_t>(INT32_MAX));
}

}  // namespace

Result<std::unique_ptr<World>> OpenNcclWorld(World& boot, const NcclOptions& options) {
  const HeapScope scope(HeapOwner::communication);
  const Status usable = UseGpu(options.gpu);
  const bool usable_everywhere = boot.Highest(usable.ok() ? 0 : 1) == 0;
  TIDEMARK_TRY(usable);
  if (!usable_everywhere) {
    return Error{ErrorCode::machine_cannot, "", "another rank cannot use its GPU", "see what that rank says"};
  }
  const std::string own = NameOfGpu(options.gpu);
  const std::vector<std::string> gpus = boot.GatherTexts(own);  // on rank 0
  const bool gpu_shared = boot.Highest(AnyTwice(gpus) ? 1 : 0) > 0;
  std::int64_t ranks_on_gpu = 1;
  if (gpu_shared) {
    TIDEMARK_ASSIGN(const std::unique_ptr<Communicator> sharing, boot.Split(ColourOf(own)));
    ranks_on_gpu = sharing->size();
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);  // before NCCL reads it, which it does once
  }
  const Result<NcclLibrary> nccl = boot.size() > 1 ? LoadNccl() : NcclLibrary();
  const bool there_everywhere = boot.Highest(nccl.ok() ? 0 : 1) == 0;
  NcclTools tools{nccl.ok() ? *nccl : NcclLibrary(), {}, options.gpu, 0, options.patience};
  GpuTransportFacts facts{gpu_shared, false};
  if (gpu_shared && there_everywhere) {
    // A release without the switch keeps memory of the GPU where it refuses, whatever is given up then.
    if (boot.Highest(tools.nccl.code < kSharesGpus ? 1 : 0) == 0) {
      tools.max_ctas = 4;  // ranks that do not fit on their GPU together lock up: NCCL's words on its switch
      TIDEMARK_ASSIGN(facts.nccl_takes_it, TakesSharedGpus(tools, boot));
    }
  } else if (!gpu_shared && boot.size() > 1) {
    TIDEMARK_TRY(nccl);
  }
  const GpuTransport transport = Choose(facts);
  if (transport != GpuTransport::staged && boot.size() > 1 && !there_everywhere) {
    return Error{ErrorCode::machine_cannot, "", "another rank finds no NCCL", "see what that rank says"};
  }
  return std::unique_ptr<World>(std::make_unique<NcclWorld>(boot, std::move(tools), transport, ranks_on_gpu));
}

}  // namespace tidemark
