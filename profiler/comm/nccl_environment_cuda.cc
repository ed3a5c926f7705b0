// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "profiler/capture/heap.h"
#include "profiler/comm/gpu_transport.h"
#include "profiler/comm/gpu_use_cuda.h"
#include "profiler/comm/nccl.h"
#include "profiler/comm/nccl_communicator_cuda.h"
#include "profiler/comm/nccl_library_cuda.h"

namespace tidemark {
namespace {

/// What concerns the host goes through NCCL as well, by a small buffer on the GPU.
class EnvironmentWorld final : public World {
 public:
  EnvironmentWorld(NcclTools tools, const Launcher& launcher, NcclPeers::Joined joined)
      : tools_(std::move(tools)),
        launcher_(launcher),
        how_(Describe(GpuTransport::nccl, tools_.nccl.version)),
        all_(tools_, launcher.rank, launcher.ranks, {[joined] { return joined; }, {}, {}}) {
    tools_.staged = &staged_;
    Must(all_.Joined());  // from here on it is its
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~EnvironmentWorld() override {
    cudaFree(buffer_);
    cudaStreamDestroy(stream_);
  }
  EnvironmentWorld(const EnvironmentWorld&) = delete;
  EnvironmentWorld& operator=(const EnvironmentWorld&) = delete;

  std::int64_t rank() const override { return launcher_.rank; }
  std::int64_t size() const override { return launcher_.ranks; }
  std::int64_t ranks_here() const override { return launcher_.local_ranks; }
  std::string_view how() const override { return how_; }
  Bytes staging() const override { return staged_; }

  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    const HeapScope scope(HeapOwner::communication);
    TIDEMARK_ASSIGN(const std::vector<std::int64_t> colours, GatherNumbers(colour));
    TIDEMARK_ASSIGN(ncclComm_t all, all_.Joined());
    const std::int64_t size = std::count(colours.begin(), colours.end(), colour);
    ncclComm_t comm = nullptr;  // a rank alone needs none, which would take memory
    const int own_colour = size > 1 ? static_cast<int>(colour) : NCCL_SPLIT_NOCOLOR;
    const ncclResult_t result = tools_.nccl.split(all, own_colour, static_cast<int>(rank()), &comm, nullptr);
    const NcclPeers::Joined joined{comm, result};
    const auto own = colours.begin() + rank();
    auto group = std::make_unique<NcclCommunicator>(
        tools_, std::count(colours.begin(), own, colour), size,
        NcclMeeting{[joined] { return joined; },
                    [this, comm](std::int64_t peer, std::int64_t, const ncclUniqueId& id) {
                      ncclUniqueId given = id;
                      return PassId(comm, peer, given, true);
                    },
                    [this, comm](std::int64_t peer, std::int64_t) -> Result<ncclUniqueId> {
                      ncclUniqueId taken{};
                      TIDEMARK_TRY(PassId(comm, peer, taken, false));
                      return taken;
                    }});
    if (result != ncclSuccess || size > 1) {
      TIDEMARK_TRY(group->Joined());
    }
    return std::unique_ptr<Communicator>(std::move(group));
  }

  double Highest(double value) override {
    const std::vector<double> values = Must(GatherNumbers(value));
    return *std::max_element(values.begin(), values.end());
  }
  double Sum(double value) override {
    double sum = 0;
    for (const double one : Must(GatherNumbers(value))) {
      sum += one;
    }
    return sum;
  }

  std::vector<std::string> GatherTexts(const std::string& text) override {
    const std::vector<std::int64_t> lengths = Must(GatherNumbers(static_cast<std::int64_t>(text.size())));
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::string padded = text;
    padded.resize(static_cast<std::size_t>(longest));
    const std::string all = Must(GatherBytes(padded.data(), Bytes(longest)));
    std::vector<std::string> texts;
    for (std::size_t i = 0; rank() == 0 && i < lengths.size(); ++i) {
      texts.push_back(all.substr(i * padded.size(), static_cast<std::size_t>(lengths[i])));
    }
    return texts;
  }

  /// The launcher ends the others when it sees this one end.
  void Abort(int exit_code) override {
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }

 private:
  /// The interface has no failures there, as MPI's calls end the run themselves.
  template <class T>
  T Must(Result<T> result) {
    if (!result.ok()) {
      std::fprintf(stderr, "rank %lld: %s\n", static_cast<long long>(rank()), result.error().Text().c_str());
      Abort(static_cast<int>(result.error().code));
    }
    return std::move(*result);
  }

  Result<char*> BufferOf(Bytes bytes) {
    if (bytes > size_of_buffer_) {
      cudaFree(std::exchange(buffer_, nullptr));
      size_of_buffer_ = Bytes();
      if (const cudaError_t error = cudaMalloc(&buffer_, static_cast<std::size_t>(bytes.count()));
          error != cudaSuccess) {
        return Error{ErrorCode::machine_cannot, "",
                     fmt::format("no GPU memory for what ranks tell each other: {}", cudaGetErrorString(error)), ""};
      }
      size_of_buffer_ = bytes;
    }
    return static_cast<char*>(buffer_);
  }

  /// Every rank's bytes, by rank.
  Result<std::string> GatherBytes(const void* own, Bytes bytes) {
    const HeapScope scope(HeapOwner::communication);
    std::string all(static_cast<std::size_t>((bytes * size()).count()), '\0');
    if (all.empty()) {
      return all;
    }
    TIDEMARK_ASSIGN(char* buffer, BufferOf(bytes * size()));
    char* part = buffer + (bytes * rank()).count();
    TIDEMARK_TRY(CopyAndWait(part, own, bytes, cudaMemcpyHostToDevice, stream_));
    const Exchange exchange{
        CollectiveKind::all_gather, Reduction::none, DType::u8, std::ssize(all), part, buffer, 0, stream_};
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket, all_.Begin(exchange));
    TIDEMARK_TRY(all_.Finish(ticket));
    TIDEMARK_TRY(CopyAndWait(all.data(), buffer, bytes * size(), cudaMemcpyDeviceToHost, stream_));
    return all;
  }

  template <class T>
  Result<std::vector<T>> GatherNumbers(T number) {
    TIDEMARK_ASSIGN(const std::string bytes, GatherBytes(&number, Bytes(sizeof(T))));
    std::vector<T> numbers(static_cast<std::size_t>(size()));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

  /// From one rank of a group to another; both wait.
  Status PassId(ncclComm_t comm, std::int64_t peer, ncclUniqueId& id, bool gives) {
    constexpr std::size_t kSize = sizeof(id);
    const Bytes bytes(static_cast<std::int64_t>(kSize));
    TIDEMARK_ASSIGN(char* buffer, BufferOf(bytes));
    TIDEMARK_TRY(CopyAndWait(buffer, &id, bytes, cudaMemcpyHostToDevice, stream_));
    const ncclResult_t result =
        gives ? tools_.nccl.send(buffer, kSize, ncclUint8, static_cast<int>(peer), comm, stream_)
              : tools_.nccl.receive(buffer, kSize, ncclUint8, static_cast<int>(peer), comm, stream_);
    if (result != ncclSuccess) {
      return Error{ErrorCode::machine_cannot, "",
                   fmt::format("NCCL: a way of messages with rank {} failed: {}", peer, tools_.nccl.Describe(result)),
                   "see what the other ranks said"};
    }
    return CopyAndWait(&id, buffer, bytes, cudaMemcpyDeviceToHost, stream_);
  }

  Bytes staged_;
  NcclTools tools_;
  Launcher launcher_;
  std::string how_;
  NcclCommunicator all_;
  cudaStream_t stream_ = nullptr;
  void* buffer_ = nullptr;
  Bytes size_of_buffer_;
};

/// Ids made after it must be new ones, so the variable goes again: NCCL reads it whenever it makes one.
NcclPeers::Joined MeetAt(const NcclTools& tools, const std::string& place, const Launcher& launcher) {
  setenv("NCCL_COMM_ID", place.c_str(), 0);
  ncclUniqueId id{};
  const ncclResult_t made = tools.nccl.make_id(&id);
  const NcclPeers::Joined joined = made == ncclSuccess ? NcclPeers::Join(tools, id, launcher.rank, launcher.ranks)
                                                       : NcclPeers::Joined{nullptr, made};
  unsetenv("NCCL_COMM_ID");
  return joined;
}

}  // namespace

Result<std::unique_ptr<World>> OpenNcclWorldFromEnvironment(const Launcher& launcher, const NcclOptions& options) {
  const HeapScope scope(HeapOwner::communication);
  const char* address = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (launcher.kind != Launcher::Kind::torchrun || address == nullptr || port == nullptr) {
    return Error{ErrorCode::machine_cannot, "", "nobody has said where the ranks meet",
                 "torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; mpirun needs none of them"};
  }
  TIDEMARK_TRY(UseGpu(options.gpu));
  TIDEMARK_ASSIGN(NcclLibrary nccl, LoadNccl());
  NcclTools tools{std::move(nccl), {}, options.gpu, 0, options.patience};
  const std::string host = address;
  const bool in_brackets = host.find(':') != std::string::npos && host.front() != '[';  // IPv6
  const std::string place =
      fmt::format("{}:{}", in_brackets ? "[" + host + "]" : host, std::strtol(port, nullptr, 10) + 1);
  const NcclPeers::Joined joined = MeetAt(tools, place, launcher);
  if (joined.result != ncclSuccess) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("NCCL: {} ranks did not meet at {}: {}", launcher.ranks, place,
                             joined.result == ncclInProgress ? "some have not come in time"
                                                             : tools.nccl.Describe(joined.result)),
                 "each rank needs a GPU of its own; NCCL_COMM_ID=<address>:<port> names another place"};
  }
  return std::unique_ptr<World>(std::make_unique<EnvironmentWorld>(std::move(tools), launcher, joined));
}

}  // namespace tidemark
