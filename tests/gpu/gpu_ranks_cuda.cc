// SPDX-License-Identifier: Apache-2.0
// Whether ranks on GPUs exchange what they should. Under mpirun they meet by MPI, else by torchrun's variables:
//   mpirun -np 2 gpu_ranks
//   for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 gpu_ranks &
//   done
// Two ranks on one GPU: the first way tries NCCL's switch by itself, the second needs NCCL_MULTI_RANK_GPU_ENABLE=1.
// With the word "die" the last rank ends before a collective, and the others must say what they waited for.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "profiler/comm/launcher.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/probe.h"
#include "tests/profiler/comm/looped_ranks.h"

namespace tidemark {
namespace {

Status Ok(cudaError_t error) {
  return error == cudaSuccess ? Status(Done{}) : BadInput(fmt::format("CUDA answers {}", cudaGetErrorName(error)));
}

Status Expect(bool right, std::string_view what) {
  return right ? Status(Done{}) : BadInput(fmt::format("wrong: {}", what));
}

/// Two streams, and buffers on the GPU.
struct Place {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  char *first = nullptr, *second = nullptr;
  static constexpr std::size_t kSize = std::size_t{1} << 24;

  Status Make() {
    TIDEMARK_TRY(Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    TIDEMARK_TRY(Ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)));
    TIDEMARK_TRY(Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    TIDEMARK_TRY(Ok(cudaMalloc(reinterpret_cast<void**>(&first), kSize)));
    return Ok(cudaMalloc(reinterpret_cast<void**>(&second), kSize));
  }
  Status Put(const void* from, void* to, std::size_t bytes) const {
    return Ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  }
  /// As an executor orders its streams: the other one reads behind what was begun here.
  Status Behind(Communicator& group, Communicator::Ticket ticket) const {
    if (!group.on_stream()) {
      return group.Finish(ticket);
    }
    TIDEMARK_TRY(Ok(cudaEventRecord(event, stream)));
    return Ok(cudaStreamWaitEvent(other, event, 0));
  }
  Status Fetch(const void* from, void* to, std::size_t bytes) const {
    TIDEMARK_TRY(Ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, other)));
    return Ok(cudaStreamSynchronize(other));
  }
};

Status CheckExchange(const ExchangeCase& one, Communicator& group, const Place& place) {
  const std::int64_t rank = group.rank();
  ExchangeMemory expected(one), memory(one);
  std::vector<Exchange> exchanges;
  for (std::int64_t i = 0; i < one.ranks; ++i) {
    exchanges.push_back(expected.Of(i));
  }
  DoExchange(exchanges);
  std::vector<char>&first = memory.First(rank), &second = memory.Second(rank);
  TIDEMARK_TRY(place.Put(first.data(), place.first, first.size()));
  TIDEMARK_TRY(place.Put(second.data(), place.second, second.size()));
  const auto on_gpu = [&](const void* pointer) {
    const auto* at = static_cast<const char*>(pointer);
    const bool in_first = at >= first.data() && at <= first.data() + first.size();
    return in_first ? place.first + (at - first.data()) : place.second + (at - second.data());
  };
  Exchange exchange = memory.Of(rank);
  exchange.from = on_gpu(exchange.from);
  exchange.to = on_gpu(exchange.to);
  exchange.stream = place.stream;
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group.Begin(exchange));
  TIDEMARK_TRY(place.Behind(group, ticket));
  TIDEMARK_TRY(place.Fetch(place.first, first.data(), first.size()));
  TIDEMARK_TRY(place.Fetch(place.second, second.data(), second.size()));
  TIDEMARK_TRY(group.Finish(ticket));
  return Expect(first == expected.First(rank) && second == expected.Second(rank), one.Text());
}

/// Each rank sends to the next before it receives, on one stream: whoever waited for a receiver would wait for ever.
Status CheckMessages(Communicator& group, const Place& place) {
  const std::int64_t rank = group.rank(), size = group.size();
  const std::int64_t next = (rank + 1) % size, before = (rank + size - 1) % size;
  const std::vector<Route> routes = {{rank, next, 0}, {rank, next, 1}, {before, rank, 0}, {before, rank, 1}};
  TIDEMARK_TRY(group.Connect(routes));
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  for (const std::int64_t tag : {0, 1}) {
    const std::vector<float> own(kElements, static_cast<float>(rank * 10 + tag));
    TIDEMARK_TRY(place.Put(own.data(), place.first, own.size() * sizeof(float)));
    TIDEMARK_TRY(Ok(cudaStreamSynchronize(place.stream)));  // `own` goes
    TIDEMARK_TRY(group.Send({next, tag, DType::fp32, kElements, place.stream}, place.first));
    TIDEMARK_TRY(Ok(cudaMemsetAsync(place.first, 0, own.size() * sizeof(float), place.stream)));
  }
  for (const std::int64_t tag : {1, 0}) {  // not as they were sent
    std::vector<float> received(kElements);
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                    group.Receive({before, tag, DType::fp32, kElements, place.stream}, place.second));
    TIDEMARK_TRY(place.Behind(group, ticket));
    TIDEMARK_TRY(place.Fetch(place.second, received.data(), received.size() * sizeof(float)));
    const std::vector<float> expected(kElements, static_cast<float>(before * 10 + tag));
    TIDEMARK_TRY(Expect(received == expected, fmt::format("the message of tag {} from rank {}", tag, before)));
  }
  return Done{};
}

Status CheckHost(World& world) {
  const auto rank = static_cast<double>(world.rank()), size = static_cast<double>(world.size());
  TIDEMARK_TRY(Expect(world.Highest(rank) == size - 1, "the highest rank"));
  TIDEMARK_TRY(Expect(world.Sum(rank) == size * (size - 1) / 2, "the sum of ranks"));
  const std::vector<std::string> texts =
      world.GatherTexts(std::string(static_cast<std::size_t>(world.rank()) * 3, static_cast<char>('a' + world.rank())));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TIDEMARK_TRY(Expect(texts[i] == std::string(i * 3, static_cast<char>('a' + i)), "texts"));
  }
  return Expect(world.rank() != 0 || std::ssize(texts) == world.size(), "how many texts there are");
}

Status Check(World& world, bool dies) {
  Place place;
  TIDEMARK_TRY(place.Make());
  TIDEMARK_TRY(CheckHost(world));
  TIDEMARK_ASSIGN(const std::unique_ptr<Communicator> group, world.Split(0));
  int exchanges = 0;
  for (const ExchangeCase& one : ExchangeCases()) {
    if (one.ranks == world.size()) {
      TIDEMARK_TRY(CheckExchange(one, *group, place));
      ++exchanges;
    }
  }
  if (world.size() > 1) {
    TIDEMARK_TRY(CheckMessages(*group, place));
  }
  TIDEMARK_ASSIGN(const std::unique_ptr<Communicator> alone, world.Split(world.rank()));
  TIDEMARK_TRY(Expect(alone->size() == 1, "a group of one"));
  if (dies && world.rank() == world.size() - 1) {
    std::_Exit(1);
  }
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                  group->Begin({CollectiveKind::all_reduce, Reduction::sum, DType::fp32, 1000, place.first, place.first,
                                0, place.stream}));
  TIDEMARK_TRY(group->Finish(ticket));
  if (world.rank() == 0) {
    fmt::print("{} ranks, {}: {} exchanges and messages both ways are right; {} bytes keep messages\n", world.size(),
               world.how(), exchanges, group->staging().count());
  }
  return Done{};
}

Status Run(bool dies) {
  const Launcher launcher = FindLauncher();
  const DeviceProbe probe = ProbeDevices();
  const auto gpus = std::max<std::int64_t>(1, std::ssize(probe.devices));
  const NcclOptions options{static_cast<int>(launcher.local_rank % gpus),
                            Nanos(dies ? 20'000'000'000 : 120'000'000'000)};
  if (launcher.kind == Launcher::Kind::torchrun) {
    TIDEMARK_ASSIGN(const std::unique_ptr<World> world, OpenNcclWorldFromEnvironment(launcher, options));
    return Check(*world, dies);
  }
  TIDEMARK_ASSIGN(const std::unique_ptr<World> boot, OpenMpiWorld());
  TIDEMARK_ASSIGN(const std::unique_ptr<World> world, OpenNcclWorld(*boot, options));
  return Check(*world, dies);
}

}  // namespace
}  // namespace tidemark

int main(int count, char** arguments) {
  const tidemark::Status status = tidemark::Run(count > 1 && std::string_view(arguments[1]) == "die");
  if (!status.ok()) {
    fmt::print(stderr, "error: {}\n", status.error().Text());
    return static_cast<int>(status.error().code);
  }
}
