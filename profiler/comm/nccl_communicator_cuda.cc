// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_communicator_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profiler/capture/heap.h"

namespace tidemark {
namespace {

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return ncclFloat64;
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::int64:
      return ncclInt64;
    case DType::int32:
      return ncclInt32;
    case DType::u8:
      break;
  }
  return ncclUint8;
}

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

}  // namespace

std::string NcclCommunicator::What::Text(std::int64_t size) const {
  return peer < 0 ? fmt::format("{} of {} {} among {} ranks", name, elements, Name(dtype), size)
                  : fmt::format("{} rank {}, of {} {},", name, peer, elements, Name(dtype));
}

NcclCommunicator::~NcclCommunicator() {
  const HeapScope scope(HeapOwner::communication);
  for (Patience patience(tools_.farewell); !failure_;) {
    DropDone();
    if (under_way_.empty() && AllSent()) {
      break;
    }
    if (!patience.Wait()) {
      static_cast<void>(Fail({"the end", DType::u8, 0}, "something is still under way"));
    }
  }
  for (const UnderWay& one : under_way_) {
    spare_.push_back(one.event);
  }
  for (const Copy& copy : copies_) {
    tools_.cuda.free(copy.memory);
    spare_.push_back(copy.sent);
  }
  if (tools_.staged != nullptr) {
    *tools_.staged -= staging_;
  }
  for (cudaEvent_t event : spare_) {
    if (event != nullptr) {
      tools_.cuda.destroy_event(event);
    }
  }
  for (auto& [route, channel] : channels_) {
    channel.peers.reset();
    if (channel.stream != nullptr) {
      tools_.cuda.destroy_stream(channel.stream);
    }
  }
}

Status NcclCommunicator::Ok(cudaError_t error, const What& what) {
  return error == cudaSuccess ? Status(Done{}) : Fail(what, fmt::format("CUDA answers {}", tools_.cuda.name(error)));
}

Status NcclCommunicator::Ok(ncclResult_t result, const What& what) {
  return result == ncclSuccess ? Status(Done{}) : Fail(what, tools_.nccl.Describe(result));
}

Error NcclCommunicator::Fail(const What& what, const std::string& why) {
  if (!failure_) {
    failure_ = Error{ErrorCode::machine_cannot, "", fmt::format("NCCL: {} failed: {}", what.Text(size_), why),
                     "a rank that died or a network that fails shows like this: see what the other ranks said, and "
                     "set NCCL_DEBUG=WARN"};
    if (peers_) {
      peers_->Abort();
    }
    for (auto& [route, channel] : channels_) {
      channel.peers->Abort();
    }
  }
  return *failure_;
}

/// Messages that this rank has sent have no ticket: whoever waits for anything hears of them.
Status NcclCommunicator::CheckPeers(const What& what) {
  if (peers_) {
    TIDEMARK_TRY(Ok(peers_->state(), what));
  }
  for (auto& [route, channel] : channels_) {
    const std::int64_t peer = route.from == rank_ ? route.to : route.from;
    TIDEMARK_TRY(Ok(channel.peers->state(), {"a message with", DType::u8, 0, peer}));
  }
  return Done{};
}

Result<ncclComm_t> NcclCommunicator::Joined() {
  if (!peers_) {
    const What what{"the first meeting", DType::u8, 0};
    const NcclPeers::Joined joined = meeting_.join();
    if (joined.result != ncclSuccess) {
      return Fail(what,
                  joined.result == ncclInProgress ? "some have not come in time" : tools_.nccl.Describe(joined.result));
    }
    peers_ = std::make_unique<NcclPeers>(tools_, joined.comm);
  }
  return peers_->comm();
}

Status NcclCommunicator::Join() {
  const HeapScope scope(HeapOwner::communication);
  if (failure_) {
    return *failure_;
  }
  if (size_ > 1) {
    TIDEMARK_TRY(Joined());
  }
  return Done{};
}

Result<Communicator::Ticket> NcclCommunicator::Begin(const Exchange& exchange) {
  const HeapScope scope(HeapOwner::communication);
  if (failure_) {
    return *failure_;
  }
  const What what{Name(exchange.kind), exchange.dtype, exchange.elements};
  TIDEMARK_ASSIGN(const std::vector<NcclCall> calls, NcclCallsOf(exchange, rank_, size_));
  for (std::size_t i = 0; size_ == 1 && i < calls.size(); ++i) {
    TIDEMARK_TRY(CopyAlone(calls[i], StreamOf(exchange.stream), what));
  }
  if (size_ > 1 && !calls.empty()) {
    TIDEMARK_TRY(Put(calls, StreamOf(exchange.stream), what));
  }
  return Mark(StreamOf(exchange.stream), what);
}

Status NcclCommunicator::CopyAlone(const NcclCall& call, cudaStream_t stream, const What& what) {
  const Bytes bytes = SizeOf(call.dtype) * call.count;
  return call.from == call.to
             ? Status(Done{})
             : Ok(tools_.cuda.copy(call.to, call.from, Size(bytes), cudaMemcpyDeviceToDevice, stream), what);
}

Status NcclCommunicator::Put(const std::vector<NcclCall>& calls, cudaStream_t stream, const What& what) {
  TIDEMARK_ASSIGN(ncclComm_t comm, Joined());
  const bool grouped = calls.size() > 1;
  if (grouped) {
    TIDEMARK_TRY(Ok(tools_.nccl.group_start(), what));
  }
  ncclResult_t result = ncclSuccess;
  for (const NcclCall& call : calls) {
    result = result == ncclSuccess ? PutOne(call, comm, stream) : result;
  }
  if (grouped) {  // also where a call failed: a group that stays open takes in whatever comes
    const ncclResult_t end = tools_.nccl.group_end();
    result = result == ncclSuccess ? end : result;
  }
  return Ok(result, what);
}

ncclResult_t NcclCommunicator::PutOne(const NcclCall& call, ncclComm_t comm, cudaStream_t stream) const {
  const NcclLibrary& nccl = tools_.nccl;
  const ncclDataType_t type = TypeOf(call.dtype);
  const ncclRedOp_t operation = call.maximum ? ncclMax : ncclSum;
  const auto count = static_cast<std::size_t>(call.count);
  const int root = static_cast<int>(call.root);
  switch (call.kind) {
    case NcclCall::Kind::all_reduce:
      return nccl.all_reduce(call.from, call.to, count, type, operation, comm, stream);
    case NcclCall::Kind::reduce_scatter:
      return nccl.reduce_scatter(call.from, call.to, count, type, operation, comm, stream);
    case NcclCall::Kind::all_gather:
      return nccl.all_gather(call.from, call.to, count, type, comm, stream);
    case NcclCall::Kind::reduce:
      return nccl.reduce(call.from, call.to, count, type, operation, root, comm, stream);
    case NcclCall::Kind::send:
      return nccl.send(call.from, count, type, root, comm, stream);
    case NcclCall::Kind::receive:
      return nccl.receive(call.to, count, type, root, comm, stream);
    case NcclCall::Kind::broadcast:
      break;
  }
  return nccl.broadcast(call.from, call.to, count, type, root, comm, stream);
}

/// An event behind what has just been put on the stream, and its ticket.
Result<Communicator::Ticket> NcclCommunicator::Mark(cudaStream_t stream, const What& what) {
  DropDone();
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    TIDEMARK_TRY(Ok(tools_.cuda.make_event(&event, cudaEventDisableTiming), what));
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  under_way_.push_back({event, what});
  TIDEMARK_TRY(Ok(tools_.cuda.record(event, stream), what));
  return first_ + under_way_.size() - 1;
}

bool NcclCommunicator::IsDone(UnderWay& one) {
  if (one.event == nullptr) {
    return true;
  }
  if (tools_.cuda.query(one.event) != cudaSuccess) {
    tools_.cuda.clear_error();  // "not ready" would be found by whoever asks for errors next
    return false;
  }
  spare_.push_back(std::exchange(one.event, nullptr));
  return true;
}

void NcclCommunicator::DropDone() {
  for (; !under_way_.empty() && IsDone(under_way_.front()); ++first_) {
    under_way_.pop_front();
  }
}

Status NcclCommunicator::Finish(Ticket ticket) {
  const HeapScope scope(HeapOwner::communication);
  for (Patience patience(tools_.patience);;) {
    if (ticket < first_ || IsDone(under_way_.at(ticket - first_))) {
      return Done{};
    }
    if (failure_) {
      return *failure_;
    }
    UnderWay& one = under_way_.at(ticket - first_);
    const cudaError_t error = tools_.cuda.query(one.event);
    if (error != cudaSuccess && error != cudaErrorNotReady) {
      return Ok(error, one.what);
    }
    tools_.cuda.clear_error();
    TIDEMARK_TRY(CheckPeers(one.what));
    if (!patience.Wait()) {
      return Fail(one.what, fmt::format("it was not done after {} s", tools_.patience.count() / 1'000'000'000));
    }
  }
}

// All ranks open their ways in one order, that of Route: the first way that is not open yet has both ends waiting
// there, so there is always one that goes on.
Status NcclCommunicator::Connect(std::span<const Route> routes) {
  const HeapScope scope(HeapOwner::communication);
  std::vector<Route> ordered(routes.begin(), routes.end());
  std::sort(ordered.begin(), ordered.end());
  for (const Route& route : ordered) {
    const std::int64_t peer = route.from == rank_ ? route.to : route.from;
    TIDEMARK_TRY(ChannelOf(route, {"a way of messages with", DType::u8, 0, peer}));
  }
  return Done{};
}

Result<NcclCommunicator::Channel*> NcclCommunicator::ChannelOf(const Route& route, const What& what) {
  if (failure_) {
    return *failure_;
  }
  if (const auto known = channels_.find(route); known != channels_.end()) {
    return &known->second;
  }
  const bool sends = route.from == rank_;
  if (route.from == route.to || (!sends && route.to != rank_)) {
    return Error{ErrorCode::internal, "",
                 fmt::format("rank {} has no message from rank {} to rank {}", rank_, route.from, route.to),
                 "the program is wrong: please report the job"};
  }
  ncclUniqueId id{};
  if (sends) {
    TIDEMARK_TRY(Ok(tools_.nccl.make_id(&id), what));
    TIDEMARK_TRY(meeting_.give_id(route.to, route.tag, id));
  } else {
    TIDEMARK_ASSIGN(id, meeting_.take_id(route.from, route.tag));
  }
  const NcclPeers::Joined joined = NcclPeers::Join(tools_, id, sends ? 0 : 1, 2);
  if (joined.result == ncclInProgress) {
    return Fail(what, "the other end has not come in time");
  }
  TIDEMARK_TRY(Ok(joined.result, what));
  Channel& channel = channels_[route];
  channel.peers = std::make_unique<NcclPeers>(tools_, joined.comm);
  TIDEMARK_TRY(Ok(tools_.cuda.make_stream(&channel.stream, cudaStreamNonBlocking), what));
  TIDEMARK_TRY(SayHello(channel, sends, what));
  return &channel;
}

/// NCCL connects two ranks at their first message, in which the one waits for the other: this is it.
Status NcclCommunicator::SayHello(Channel& channel, bool sends, const What& what) {
  TIDEMARK_ASSIGN(Copy * byte, CopyOf(Bytes(1), what));
  TIDEMARK_TRY(Ok(sends ? tools_.nccl.send(byte->memory, 1, ncclUint8, 1, channel.peers->comm(), channel.stream)
                        : tools_.nccl.receive(byte->memory, 1, ncclUint8, 0, channel.peers->comm(), channel.stream),
                  what));
  TIDEMARK_TRY(Ok(tools_.cuda.record(byte->sent, channel.stream), what));
  TIDEMARK_ASSIGN(const Ticket ticket, Mark(channel.stream, what));
  return Finish(ticket);
}

/// The smallest that has been sent and is large enough, or a new one.
Result<NcclCommunicator::Copy*> NcclCommunicator::CopyOf(Bytes size, const What& what) {
  Copy* best = nullptr;
  for (Copy& copy : copies_) {
    if (copy.size >= size && (best == nullptr || copy.size < best->size)) {
      const bool is_sent = tools_.cuda.query(copy.sent) == cudaSuccess;
      tools_.cuda.clear_error();
      best = is_sent ? &copy : best;
    }
  }
  if (best != nullptr) {
    return best;
  }
  Copy& copy = copies_.emplace_back();
  copy.size = size;
  TIDEMARK_TRY(Ok(tools_.cuda.allocate(&copy.memory, Size(size)), what));
  staging_ += size;
  if (tools_.staged != nullptr) {
    *tools_.staged += size;
  }
  TIDEMARK_TRY(Ok(tools_.cuda.make_event(&copy.sent, cudaEventDisableTiming), what));
  return &copy;
}

bool NcclCommunicator::AllSent() const {
  const bool all = std::all_of(copies_.begin(), copies_.end(),
                               [&](const Copy& copy) { return tools_.cuda.query(copy.sent) == cudaSuccess; });
  tools_.cuda.clear_error();
  return all;
}

Status NcclCommunicator::Send(const Message& message, const void* data) {
  const HeapScope scope(HeapOwner::communication);
  const What what{"a message to", message.dtype, message.elements, message.peer};
  TIDEMARK_ASSIGN(Channel * channel, ChannelOf({rank_, message.peer, message.tag}, what));
  const Bytes bytes = SizeOf(message.dtype) * message.elements;
  if (bytes == Bytes(0)) {
    return Done{};
  }
  TIDEMARK_ASSIGN(Copy * copy, CopyOf(bytes, what));
  cudaStream_t stream = StreamOf(message.stream);
  TIDEMARK_TRY(Ok(tools_.cuda.copy(copy->memory, data, Size(bytes), cudaMemcpyDeviceToDevice, stream), what));
  TIDEMARK_TRY(Ok(tools_.cuda.record(copy->sent, stream), what));  // copied: what the way's stream waits for
  TIDEMARK_TRY(Ok(tools_.cuda.wait(channel->stream, copy->sent, 0), what));
  TIDEMARK_TRY(Ok(tools_.nccl.send(copy->memory, static_cast<std::size_t>(message.elements), TypeOf(message.dtype), 1,
                                   channel->peers->comm(), channel->stream),
                  what));
  return Ok(tools_.cuda.record(copy->sent, channel->stream), what);
}

Result<Communicator::Ticket> NcclCommunicator::Receive(const Message& message, void* data) {
  const HeapScope scope(HeapOwner::communication);
  const What what{"a message from", message.dtype, message.elements, message.peer};
  TIDEMARK_ASSIGN(Channel * channel, ChannelOf({message.peer, rank_, message.tag}, what));
  if (message.elements > 0) {
    TIDEMARK_TRY(Ok(tools_.nccl.receive(data, static_cast<std::size_t>(message.elements), TypeOf(message.dtype), 0,
                                        channel->peers->comm(), StreamOf(message.stream)),
                    what));
  }
  return Mark(StreamOf(message.stream), what);
}

}  // namespace tidemark
