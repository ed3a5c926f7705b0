// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "profiler/comm/nccl_communicator_cuda.h"

namespace tidemark {

/// NCCL and CUDA as a communicator sees them: writes down what is called and answers what a test says. Streams and
/// communicators are numbers in the order in which they were made; a test's own streams are given by Stream().
class FakeNccl {
 public:
  FakeNccl() { now = this; }
  ~FakeNccl() { now = nullptr; }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  std::vector<std::string> calls;                           ///< of both, but for queries
  std::map<std::string, ncclResult_t> fail;                 ///< what a call of NCCL answers, by its name: "send"
  std::map<int, ncclResult_t> states;                       ///< asynchronous errors, by communicator
  std::set<void*> stuck;                                    ///< streams on which nothing gets done
  std::function<bool()> before_join = [] { return true; };  ///< false: the test has gone on without this thread
  int queries_until_done = 0;                               ///< of an event of any other stream
  int events = 0, cleared = 0;

  static void* Stream(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

  NcclTools Tools() {
    NcclTools tools;
    tools.nccl = Library();
    tools.cuda = Calls();
    return tools;
  }

  /// Of four ranks, this is rank 1; ids that it gives and takes are written down.
  std::unique_ptr<NcclCommunicator> Group(const NcclTools& tools, std::int64_t size = 4) {
    return std::make_unique<NcclCommunicator>(
        tools, size == 1 ? 0 : 1, size,
        NcclMeeting{[&tools, size] { return NcclPeers::Join(tools, {}, 1, size); },
                    [this](std::int64_t peer, std::int64_t tag, const ncclUniqueId&) -> Status {
                      calls.push_back(fmt::format("give id to {} for {}", peer, tag));
                      return Done{};
                    },
                    [this](std::int64_t peer, std::int64_t tag) -> Result<ncclUniqueId> {
                      calls.push_back(fmt::format("take id from {} for {}", peer, tag));
                      return ncclUniqueId{};
                    }});
  }

  std::vector<std::string> TakeCalls() { return std::exchange(calls, {}); }

 private:
  struct Event {
    void* stream = nullptr;
    int queries = 0;
  };

  static std::uintptr_t Number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
  template <class Handle>
  static Handle HandleOf(std::uintptr_t number) {
    return reinterpret_cast<Handle>(number);
  }

  ncclResult_t Say(const char* name, const std::string& details) {
    calls.push_back(details.empty() ? name : fmt::format("{} {}", name, details));
    const auto found = fail.find(name);
    return found == fail.end() ? ncclSuccess : found->second;
  }
  static std::string On(std::size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return fmt::format("{} of type {} by {} on {}", count, static_cast<int>(type), Number(comm), Number(stream));
  }

  static NcclLibrary Library() {
    NcclLibrary nccl;
    nccl.version = "2.0.0";
    nccl.make_id = [](ncclUniqueId*) { return now->Say("make id", ""); };
    nccl.join = [](ncclComm_t* comm, int ranks, ncclUniqueId, int rank, ncclConfig_t*) {
      const std::function<bool()> before = now->before_join;
      if (!before()) {
        return ncclSystemError;
      }
      *comm = HandleOf<ncclComm_t>(++now->comms_);
      return now->Say("join", fmt::format("as {} of {}", rank, ranks));
    };
    nccl.destroy = [](ncclComm_t comm) { return now->Say("destroy", fmt::format("{}", Number(comm))); };
    nccl.abort = [](ncclComm_t comm) { return now->Say("abort", fmt::format("{}", Number(comm))); };
    nccl.state = [](ncclComm_t comm, ncclResult_t* state) {
      const auto found = now->states.find(static_cast<int>(Number(comm)));
      *state = found == now->states.end() ? ncclSuccess : found->second;
      return ncclSuccess;
    };
    nccl.error_string = [](ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "other error"; };
    nccl.last_error = [](ncclComm_t) { return "connection closed by peer"; };
    nccl.group_start = [] { return now->Say("group start", ""); };
    nccl.group_end = [] { return now->Say("group end", ""); };
    nccl.all_reduce = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                         cudaStream_t stream) {
      return now->Say(op == ncclMax ? "all_reduce max" : "all_reduce sum", On(count, type, comm, stream));
    };
    nccl.reduce_scatter = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                             cudaStream_t stream) { return now->Say("scatter", On(count, type, comm, stream)); };
    nccl.all_gather = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                         cudaStream_t stream) { return now->Say("gather", On(count, type, comm, stream)); };
    nccl.reduce = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t, int root, ncclComm_t comm,
                     cudaStream_t stream) {
      return now->Say("reduce", fmt::format("to {}: {}", root, On(count, type, comm, stream)));
    };
    nccl.broadcast = [](const void*, void*, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
      return now->Say("broadcast", fmt::format("from {}: {}", root, On(count, type, comm, stream)));
    };
    nccl.send = [](const void* data, std::size_t count, ncclDataType_t type, int, ncclComm_t comm,
                   cudaStream_t stream) {
      now->sent = data;
      return now->Say("send", On(count, type, comm, stream));
    };
    nccl.receive = [](void*, std::size_t count, ncclDataType_t type, int, ncclComm_t comm, cudaStream_t stream) {
      return now->Say("receive", On(count, type, comm, stream));
    };
    return nccl;
  }

  static StreamCalls Calls() {
    StreamCalls cuda;
    cuda.use_gpu = [](int) { return cudaSuccess; };
    cuda.make_stream = [](cudaStream_t* stream, unsigned) {
      *stream = HandleOf<cudaStream_t>(100 + ++now->streams_);
      return cudaSuccess;
    };
    cuda.destroy_stream = [](cudaStream_t) { return cudaSuccess; };
    cuda.make_event = [](cudaEvent_t* event, unsigned) {
      *event = HandleOf<cudaEvent_t>(static_cast<std::uintptr_t>(++now->events));
      return cudaSuccess;
    };
    cuda.destroy_event = [](cudaEvent_t) {
      --now->events;
      return cudaSuccess;
    };
    cuda.record = [](cudaEvent_t event, cudaStream_t stream) {
      now->recorded_[event] = {stream, now->queries_until_done};
      return cudaSuccess;
    };
    cuda.query = [](cudaEvent_t event) {
      const auto found = now->recorded_.find(event);
      if (found == now->recorded_.end()) {
        return cudaSuccess;
      }
      return now->stuck.count(found->second.stream) > 0 || found->second.queries-- > 0 ? cudaErrorNotReady
                                                                                       : cudaSuccess;
    };
    cuda.wait = [](cudaStream_t stream, cudaEvent_t event, unsigned) {
      now->calls.push_back(fmt::format("{} waits for {}", Number(stream), Number(now->recorded_[event].stream)));
      return cudaSuccess;
    };
    cuda.copy = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
      now->calls.push_back(fmt::format("copy {} bytes on {}", bytes, Number(stream)));
      std::memcpy(to, from, bytes);
      return cudaSuccess;
    };
    cuda.allocate = [](void** memory, std::size_t bytes) {
      *memory = now->memory_.emplace_back(std::make_unique<char[]>(bytes)).get();
      return cudaSuccess;
    };
    cuda.free = [](void*) { return cudaSuccess; };
    cuda.clear_error = [] {
      ++now->cleared;
      return cudaSuccess;
    };
    cuda.name = [](cudaError_t) { return "an error"; };
    return cuda;
  }

  static inline FakeNccl* now = nullptr;  ///< pointers to functions carry nothing along
  std::uintptr_t comms_ = 0, streams_ = 0;
  std::map<cudaEvent_t, Event> recorded_;
  std::deque<std::unique_ptr<char[]>> memory_;

 public:
  const void* sent = nullptr;  ///< what the last send reads
};

}  // namespace tidemark
