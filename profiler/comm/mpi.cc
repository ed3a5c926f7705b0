// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "kernels/stretch.h"
#include "profiler/capture/heap.h"
#include "profiler/comm/communicator.h"

namespace tidemark {
namespace {

/// MPI has no floats of 16 bits: two values are widened to fp32, put together and rounded, as NCCL does it.
template <DType dtype, class PutTogether>
void OfHalves(const void* in, void* in_out, std::int64_t elements, PutTogether put_together) {
  const kernels::ConstTensor other{{dtype, elements}, in};
  const kernels::Tensor result{{dtype, elements}, in_out};
  std::array<float, kernels::kStretch> one{}, two{};
  for (std::int64_t begin = 0; begin < elements; begin += kernels::kStretch) {
    const std::int64_t count = std::min(kernels::kStretch, elements - begin);
    kernels::Widen(result, begin, count, one.data());
    kernels::Widen(other, begin, count, two.data());
    std::transform(one.begin(), one.begin() + count, two.begin(), one.begin(), put_together);
    kernels::Narrow(one.data(), result, begin, count);
  }
}

template <DType dtype>
void Add(void* in, void* in_out, int* elements, MPI_Datatype*) {
  OfHalves<dtype>(in, in_out, *elements, std::plus<float>());
}

/// A NaN stays one.
template <DType dtype>
void Maximum(void* in, void* in_out, int* elements, MPI_Datatype*) {
  OfHalves<dtype>(in, in_out, *elements,
                  [](float one, float other) { return one >= other || std::isnan(one) ? one : other; });
}

struct HalfOperations {
  MPI_Op add = MPI_OP_NULL, maximum = MPI_OP_NULL;

  template <DType dtype>
  void Create() {
    MPI_Op_create(Add<dtype>, 1, &add);
    MPI_Op_create(Maximum<dtype>, 1, &maximum);
  }
  void Free() {
    MPI_Op_free(&add);
    MPI_Op_free(&maximum);
  }
};

struct Operations {
  HalfOperations bf16, fp16;
};

Error Failed(std::string_view what, int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {ErrorCode::machine_cannot, "", fmt::format("MPI: {} failed: {}", what, text.data()),
          "a rank that died or a network that fails shows like this: see what the other ranks said"};
}

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return MPI_DOUBLE;
    case DType::fp32:
      return MPI_FLOAT;
    case DType::bf16:
    case DType::fp16:
      return MPI_UINT16_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::u8:
      return MPI_UINT8_T;
  }
  TIDEMARK_CHECK(false && "an unknown dtype");
}

Result<MPI_Datatype> TypeOf(const Message& message) {
  if (message.elements > INT_MAX) {
    return Error{ErrorCode::machine_cannot, "",
                 fmt::format("a message of {} elements: MPI takes {} at most", message.elements, INT_MAX),
                 "set a smaller micro_batch_size"};
  }
  return TypeOf(message.dtype);
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, const Operations& operations) : comm_(comm), operations_(operations) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  /// Does not wait for messages that nobody may take any more: where an error ends this rank, the others are told only
  /// after it. MPI keeps what is under way, and its memory stays.
  ~MpiCommunicator() override {
    DropReceived();
    for (Sent& sent : sent_) {
      MPI_Request_free(&sent.request);
      static_cast<void>(sent.bytes.release());
    }
    MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }

  Result<Ticket> Begin(const Exchange& exchange) override {
    const HeapScope scope(HeapOwner::communication);
    const MPI_Datatype type = TypeOf(exchange.dtype);
    if (exchange.elements > INT_MAX) {
      return Error{ErrorCode::machine_cannot, "",
                   fmt::format("a collective of {} elements: MPI takes {} at most", exchange.elements, INT_MAX),
                   "use smaller buckets"};
    }
    UnderWay& one = under_way_.emplace_back();
    if (const int code = Start(exchange, type, one); code != MPI_SUCCESS) {
      return Failed(Name(exchange.kind), code);
    }
    return under_way_.size() - 1;
  }

  Status Finish(Ticket ticket) override {
    const HeapScope scope(HeapOwner::communication);
    UnderWay& one = under_way_.at(ticket);
    if (const int code = MPI_Wait(&one.request, MPI_STATUS_IGNORE); code != MPI_SUCCESS) {
      return Failed("a collective, or a message,", code);
    }
    std::copy(one.part.begin(), one.part.end(), one.to);
    one.part.clear();
    while (!under_way_.empty() && under_way_.back().request == MPI_REQUEST_NULL) {
      under_way_.pop_back();
    }
    return Done{};
  }

  Status Send(const Message& message, const void* data) override {
    const HeapScope scope(HeapOwner::communication);
    TIDEMARK_ASSIGN(const MPI_Datatype type, TypeOf(message));
    DropReceived();
    const auto size = static_cast<std::size_t>((SizeOf(message.dtype) * message.elements).count());
    Sent& sent = sent_.emplace_back();
    sent.bytes = std::make_unique<char[]>(size);
    std::memcpy(sent.bytes.get(), data, size);
    if (const int code = MPI_Isend(sent.bytes.get(), static_cast<int>(message.elements), type,
                                   static_cast<int>(message.peer), static_cast<int>(message.tag), comm_, &sent.request);
        code != MPI_SUCCESS) {
      return Failed("a message", code);
    }
    return Done{};
  }

  Result<Ticket> Receive(const Message& message, void* data) override {
    const HeapScope scope(HeapOwner::communication);
    TIDEMARK_ASSIGN(const MPI_Datatype type, TypeOf(message));
    UnderWay& one = under_way_.emplace_back();
    if (const int code = MPI_Irecv(data, static_cast<int>(message.elements), type, static_cast<int>(message.peer),
                                   static_cast<int>(message.tag), comm_, &one.request);
        code != MPI_SUCCESS) {
      return Failed("a message", code);
    }
    return under_way_.size() - 1;
  }

 private:
  /// A message that the receiver may not have taken yet.
  struct Sent {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<char[]> bytes;
  };

  /// What the receiver has is dropped; of the others the memory stays.
  void DropReceived() {
    std::erase_if(sent_, [](Sent& sent) {
      int done = 0;
      MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
  }

  struct UnderWay {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<int> counts, begins;  ///< elements of each rank's part; MPI reads them until it is done
    std::vector<char> part;           ///< received beside what is sent, and copied to `to` behind it
    char* to = nullptr;
  };

  int Start(const Exchange& exchange, MPI_Datatype type, UnderWay& one) const {
    for (int rank = 0; rank < size_; ++rank) {
      one.counts.push_back(static_cast<int>(exchange.PartOf(rank, size_)));
      one.begins.push_back(static_cast<int>(exchange.BeginOf(rank, size_)));
    }
    const Bytes element = SizeOf(exchange.dtype);
    const std::int64_t own = exchange.PartOf(rank_, size_);
    const std::int64_t before = (element * exchange.BeginOf(rank_, size_)).count();
    switch (exchange.kind) {
      case CollectiveKind::all_reduce:
        return MPI_Iallreduce(exchange.from == exchange.to ? MPI_IN_PLACE : exchange.from, exchange.to,
                              static_cast<int>(exchange.elements), type, OperationOf(exchange), comm_, &one.request);
      case CollectiveKind::reduce_scatter: {
        void* to = exchange.to;
        if (to == static_cast<const char*>(exchange.from) + before) {
          one.part.resize(static_cast<std::size_t>((element * own).count()));
          one.to = static_cast<char*>(to);
          to = one.part.data();
        }
        return MPI_Ireduce_scatter(exchange.from, to, one.counts.data(), type, OperationOf(exchange), comm_,
                                   &one.request);
      }
      case CollectiveKind::all_gather: {
        const bool in_place = exchange.from == static_cast<const char*>(exchange.to) + before;
        return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : exchange.from, static_cast<int>(own), type, exchange.to,
                               one.counts.data(), one.begins.data(), type, comm_, &one.request);
      }
      case CollectiveKind::all_to_all:
        TIDEMARK_CHECK(exchange.elements % size_ == 0 && (exchange.elements == 0 || exchange.from != exchange.to));
        return MPI_Ialltoall(exchange.from, static_cast<int>(own), type, exchange.to, static_cast<int>(own), type,
                             comm_, &one.request);
      case CollectiveKind::broadcast:
        return MPI_Ibcast(exchange.to, static_cast<int>(exchange.elements), type, static_cast<int>(exchange.root),
                          comm_, &one.request);
      default:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
  }

  MPI_Op OperationOf(const Exchange& exchange) const {
    const bool maximum = exchange.reduction == Reduction::max;
    if (exchange.dtype == DType::bf16 || exchange.dtype == DType::fp16) {
      const HalfOperations& of = exchange.dtype == DType::bf16 ? operations_.bf16 : operations_.fp16;
      return maximum ? of.maximum : of.add;
    }
    return maximum ? MPI_MAX : MPI_SUM;
  }

  MPI_Comm comm_;
  const Operations& operations_;
  int rank_ = 0, size_ = 1;
  std::deque<UnderWay> under_way_;  ///< by ticket; those that are done at the end are dropped
  std::list<Sent> sent_;
};

class MpiWorld final : public World {
 public:
  MpiWorld() {
    const HeapScope scope(HeapOwner::communication);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    operations_.bf16.Create<DType::bf16>();
    operations_.fp16.Create<DType::fp16>();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm here = MPI_COMM_NULL;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here) == MPI_SUCCESS) {
      MPI_Comm_size(here, &ranks_here_);
      MPI_Comm_free(&here);
    }
  }
  ~MpiWorld() override {
    operations_.bf16.Free();
    operations_.fp16.Free();
    MPI_Finalize();
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  std::int64_t ranks_here() const override { return ranks_here_; }

  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    const HeapScope scope(HeapOwner::communication);
    MPI_Comm comm = MPI_COMM_NULL;
    if (const int code = MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(colour), rank_, &comm); code != MPI_SUCCESS) {
      return Failed("MPI_Comm_split", code);
    }
    return std::unique_ptr<Communicator>(std::make_unique<MpiCommunicator>(comm, operations_));
  }

  double Highest(double value) override {
    const HeapScope scope(HeapOwner::communication);
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }
  double Sum(double value) override {
    const HeapScope scope(HeapOwner::communication);
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
  }

  std::vector<std::string> GatherTexts(const std::string& text) override {
    const HeapScope scope(HeapOwner::communication);
    if (rank_ != 0) {
      auto length = static_cast<std::int64_t>(text.size());
      MPI_Send(&length, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD);
      InPieces(length,
               [&](std::int64_t at, int count) { MPI_Send(text.data() + at, count, MPI_CHAR, 0, 0, MPI_COMM_WORLD); });
      return {};
    }
    std::vector<std::string> texts = {text};
    for (int from = 1; from < size_; ++from) {
      std::int64_t length = 0;
      MPI_Recv(&length, 1, MPI_INT64_T, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      std::string& received = texts.emplace_back(static_cast<std::size_t>(length), '\0');
      InPieces(length, [&](std::int64_t at, int count) {
        MPI_Recv(received.data() + at, count, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      });
    }
    return texts;
  }

  void Abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::abort();
  }

 private:
  /// MPI counts in int.
  template <class Transfer>
  static void InPieces(std::int64_t length, Transfer transfer) {
    constexpr std::int64_t kPiece = 1 << 28;
    for (std::int64_t at = 0; at < length; at += kPiece) {
      transfer(at, static_cast<int>(std::min(kPiece, length - at)));
    }
  }

  Operations operations_;
  int rank_ = 0, size_ = 1, ranks_here_ = 1;
};

}  // namespace

Result<std::unique_ptr<World>> OpenMpiWorld() {
  const HeapScope scope(HeapOwner::communication);
  int provided = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided); code != MPI_SUCCESS) {
    return Failed("MPI_Init_thread", code);
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return Error{ErrorCode::machine_cannot, "", "this MPI lets only a process's first thread communicate",
                 "it was built without support for threads: use one that has MPI_THREAD_SERIALIZED"};
  }
  return std::unique_ptr<World>(std::make_unique<MpiWorld>());
}

}  // namespace tidemark
