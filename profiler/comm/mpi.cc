// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "profiler/comm/communicator.h"

namespace tidemark {
namespace {

float Widen(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

/// To the nearest, ties to even; a NaN stays one.
std::uint16_t Narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// MPI has no bf16: two values are added as fp32 and rounded, as NCCL does it.
void AddBf16(void* in, void* in_out, int* length, MPI_Datatype*) {
  const auto* addend = static_cast<const std::uint16_t*>(in);
  auto* sum = static_cast<std::uint16_t*>(in_out);
  for (int i = 0; i < *length; ++i) {
    sum[i] = Narrow(Widen(sum[i]) + Widen(addend[i]));
  }
}

void MaximumBf16(void* in, void* in_out, int* length, MPI_Datatype*) {
  const auto* other = static_cast<const std::uint16_t*>(in);
  auto* highest = static_cast<std::uint16_t*>(in_out);
  for (int i = 0; i < *length; ++i) {
    highest[i] = Widen(highest[i]) >= Widen(other[i]) || std::isnan(Widen(highest[i])) ? highest[i] : other[i];
  }
}

struct Operations {
  MPI_Op add_bf16 = MPI_OP_NULL, maximum_bf16 = MPI_OP_NULL;
};

Error Failed(std::string_view what, int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {ErrorCode::machine_cannot, "", fmt::format("MPI: {} failed: {}", what, text.data()),
          "a rank that died or a network that fails shows like this: see what the other ranks said"};
}

Result<MPI_Datatype> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return MPI_DOUBLE;
    case DType::fp32:
      return MPI_FLOAT;
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::fp16:
      break;
  }
  return BadInput(fmt::format("{} cannot be sent between CPU ranks", Name(dtype)), "use bf16 or fp32");
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, const Operations& operations) : comm_(comm), operations_(operations) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }

  Result<Ticket> Begin(const Exchange& exchange) override {
    TIDEMARK_ASSIGN(const MPI_Datatype type, TypeOf(exchange.dtype));
    if (exchange.elements > INT_MAX) {
      return Error{ErrorCode::machine_cannot, "",
                   fmt::format("a collective of {} elements: MPI takes {} at most", exchange.elements, INT_MAX),
                   "use smaller buckets"};
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (const int code = Start(exchange, type, &request); code != MPI_SUCCESS) {
      return Failed(Name(exchange.kind), code);
    }
    requests_.push_back(request);
    return requests_.size() - 1;
  }

  Status Finish(Ticket ticket) override {
    if (const int code = MPI_Wait(&requests_.at(ticket), MPI_STATUS_IGNORE); code != MPI_SUCCESS) {
      return Failed("a collective", code);
    }
    while (!requests_.empty() && requests_.back() == MPI_REQUEST_NULL) {
      requests_.pop_back();
    }
    return Done{};
  }

 private:
  int Start(const Exchange& exchange, MPI_Datatype type, MPI_Request* request) const {
    const int all = static_cast<int>(exchange.elements), part = all / size_;
    switch (exchange.kind) {
      case CollectiveKind::all_reduce:
        return MPI_Iallreduce(exchange.from == exchange.to ? MPI_IN_PLACE : exchange.from, exchange.to, all, type,
                              OperationOf(exchange), comm_, request);
      case CollectiveKind::reduce_scatter:
        return MPI_Ireduce_scatter_block(exchange.from, exchange.to, part, type, OperationOf(exchange), comm_, request);
      case CollectiveKind::all_gather: {
        const auto* own = static_cast<const char*>(exchange.to) + rank_ * (SizeOf(exchange.dtype) * part).count();
        return MPI_Iallgather(exchange.from == own ? MPI_IN_PLACE : exchange.from, part, type, exchange.to, part, type,
                              comm_, request);
      }
      default:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
  }

  MPI_Op OperationOf(const Exchange& exchange) const {
    const bool maximum = exchange.reduction == Reduction::max;
    if (exchange.dtype == DType::bf16) {
      return maximum ? operations_.maximum_bf16 : operations_.add_bf16;
    }
    return maximum ? MPI_MAX : MPI_SUM;
  }

  MPI_Comm comm_;
  const Operations& operations_;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;  ///< by ticket; those that are done at the end are dropped
};

class MpiWorld final : public World {
 public:
  MpiWorld() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Op_create(AddBf16, 1, &operations_.add_bf16);
    MPI_Op_create(MaximumBf16, 1, &operations_.maximum_bf16);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiWorld() override {
    MPI_Op_free(&operations_.add_bf16);
    MPI_Op_free(&operations_.maximum_bf16);
    MPI_Finalize();
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }

  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    MPI_Comm comm = MPI_COMM_NULL;
    if (const int code = MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(colour), rank_, &comm); code != MPI_SUCCESS) {
      return Failed("MPI_Comm_split", code);
    }
    return std::unique_ptr<Communicator>(std::make_unique<MpiCommunicator>(comm, operations_));
  }

  double Highest(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }
  double Sum(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
  }

  std::vector<std::string> GatherTexts(const std::string& text) override {
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
  int rank_ = 0, size_ = 1;
};

std::int64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

}  // namespace

std::int64_t LaunchedRanks() {
  if (const std::int64_t open_mpi = NumberIn("OMPI_COMM_WORLD_SIZE"); open_mpi > 0) {
    return open_mpi;
  }
  return std::getenv("PMIX_RANK") != nullptr ? NumberIn("SLURM_NTASKS") : 0;
}

Result<std::unique_ptr<World>> OpenMpiWorld() {
  int provided = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); code != MPI_SUCCESS) {
    return Failed("MPI_Init_thread", code);
  }
  return std::unique_ptr<World>(std::make_unique<MpiWorld>());
}

}  // namespace tidemark
