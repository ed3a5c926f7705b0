// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/comm/communicator.h"
#include "profiler/comm/nccl_calls.h"
#include "profiler/comm/nccl_peers_cuda.h"

namespace tidemark {

/// How the ranks of a group meet in NCCL. Each may wait for the others.
struct NcclMeeting {
  /// The group's own communicator; made when the group is told to join, or at the first exchange, as PyTorch does: a
  /// group that nobody uses takes nothing.
  std::function<NcclPeers::Joined()> join;
  /// Passes the id of a way of messages from one end to the other.
  std::function<Status(std::int64_t peer, std::int64_t tag, const ncclUniqueId& id)> give_id;
  std::function<Result<ncclUniqueId>(std::int64_t peer, std::int64_t tag)> take_id;
};

/// Exchanges of device memory through NCCL, on the caller's streams. A failure ends it: it aborts what is under way,
/// and every later call gives that failure.
///
/// NCCL has no tags, and all that one communicator of it does is done in one order. So each way of messages (Route) is
/// an NCCL communicator of two ranks. A message is received on the caller's stream. It is sent on a stream of the way's
/// own, from a copy which is made on the caller's stream; copies are kept, and used again when they are sent. A message
/// under way keeps some SMs of the GPU busy until it is taken; streams that are more than CUDA_DEVICE_MAX_CONNECTIONS
/// may wait for each other.
class NcclCommunicator final : public Communicator {
 public:
  /// `tools` outlives it.
  NcclCommunicator(const NcclTools& tools, std::int64_t rank, std::int64_t size, NcclMeeting meeting)
      : tools_(tools), rank_(rank), size_(size), meeting_(std::move(meeting)) {}
  /// Gives what is under way some time to end (NcclTools::farewell), and then aborts it.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  bool on_stream() const override { return true; }
  Bytes staging() const override { return staging_; }

  /// Tickets need not be finished: those that are done are dropped by later calls.
  Result<Ticket> Begin(const Exchange& exchange) override;
  Status Finish(Ticket ticket) override;
  Status Join() override;
  Status Connect(std::span<const Route> routes) override;
  Status Send(const Message& message, const void* data) override;
  Result<Ticket> Receive(const Message& message, void* data) override;

  /// The group's communicator, which this makes where there is none yet.
  Result<ncclComm_t> Joined();

 private:
  /// Something for a sentence: "all_reduce of 1024 fp32 among 4 ranks", "a message of 8 bf16 from rank 2".
  struct What {
    std::string_view name;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;
    std::int64_t peer = -1;
    std::string Text(std::int64_t size) const;
  };
  struct UnderWay {
    cudaEvent_t event = nullptr;  ///< nullptr: it is done
    What what;
  };
  /// Messages on a way, or a copy of one.
  struct Channel {
    std::unique_ptr<NcclPeers> peers;
    cudaStream_t stream = nullptr;
  };
  struct Copy {
    void* memory = nullptr;
    Bytes size;
    cudaEvent_t sent = nullptr;
  };

  Status Ok(cudaError_t error, const What& what);
  Status Ok(ncclResult_t result, const What& what);
  Error Fail(const What& what, const std::string& why);
  Status CheckPeers(const What& what);

  Status Put(const std::vector<NcclCall>& calls, cudaStream_t stream, const What& what);
  ncclResult_t PutOne(const NcclCall& call, ncclComm_t comm, cudaStream_t stream) const;
  Status CopyAlone(const NcclCall& call, cudaStream_t stream, const What& what);
  Result<Ticket> Mark(cudaStream_t stream, const What& what);
  void DropDone();
  bool IsDone(UnderWay& one);

  Result<Channel*> ChannelOf(const Route& route, const What& what);
  Status SayHello(Channel& channel, bool sends, const What& what);
  Result<Copy*> CopyOf(Bytes size, const What& what);
  bool AllSent() const;

  const NcclTools& tools_;
  std::int64_t rank_, size_;
  NcclMeeting meeting_;
  std::unique_ptr<NcclPeers> peers_;
  std::optional<Error> failure_;
  std::deque<UnderWay> under_way_;  ///< by ticket, from first_ on
  Ticket first_ = 0;
  std::vector<cudaEvent_t> spare_;
  std::map<Route, Channel> channels_;
  std::deque<Copy> copies_;
  Bytes staging_;
};

}  // namespace tidemark
