// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "sim/program/program.h"

namespace tidemark {

/// One collective of one rank: `elements` counts the full buffer, as Collective::payload_elements does. All-reduce
/// reads and writes all of it, reduce-scatter reads all and writes this rank's part, all-gather reads the part and
/// writes all; parts are equal, rounded up (the last ones are shorter or empty), and in the order of ranks. `from` may
/// be `to` for all-reduce, or this rank's part of `to` for all-gather; `to` may be this rank's part of `from` for
/// reduce-scatter, which leaves the others as they were. Broadcast gives all of `to` on rank `root` to the others.
/// All-to-all reads all and writes as much beside it: each rank's part of `from` goes to that rank, and what came from
/// each lies in the order of ranks; `elements` is a multiple of their number. Other kinds are refused.
///
/// Of ranks on GPUs the operands lie in device memory, and `stream` is the CUDA stream on which the exchange is put
/// (nullptr: the default one): it begins when what was put there before is done, and what is put there after it finds
/// its result (on_stream()). Ranks on the host have no streams.
struct Exchange {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Reduction reduction = Reduction::sum;  ///< avg is a sum here: whoever asks divides
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t root = 0;
  void* stream = nullptr;

  std::int64_t BeginOf(std::int64_t rank, std::int64_t ranks) const {
    return std::min((elements + ranks - 1) / ranks * rank, elements);
  }
  std::int64_t PartOf(std::int64_t rank, std::int64_t ranks) const {
    return BeginOf(rank + 1, ranks) - BeginOf(rank, ranks);
  }
};

/// A tensor on its way from one rank of a group to another. Messages between two ranks that carry one tag arrive in the
/// order in which they were sent; the receiver knows their type.
struct Message {
  std::int64_t peer = 0, tag = 0;
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  void* stream = nullptr;  ///< as Exchange::stream
};

/// The way of all messages from one rank of a group to another that carry one tag.
struct Route {
  std::int64_t from = 0, to = 0, tag = 0;
  friend auto operator<=>(const Route&, const Route&) = default;
};

/// The ranks of one group, as one of them sees it.
class Communicator {
 public:
  /// Identifies an exchange under way.
  using Ticket = std::size_t;

  virtual ~Communicator() = default;
  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;
  /// Begins an exchange: its memory belongs to the communicator until Finish. All ranks begin theirs in one order.
  virtual Result<Ticket> Begin(const Exchange& exchange) = 0;
  /// The host waits until it is done. Where a peer has died, this says so.
  virtual Status Finish(Ticket ticket) = 0;
  /// Whether a stream alone keeps the order: an event recorded on it behind Begin or Receive comes after the result,
  /// and nobody need call Finish but to hear of failures. Where not, the result is there when Finish returns, not
  /// before.
  virtual bool on_stream() const { return false; }
  /// Device memory that it holds to keep messages on their way.
  virtual Bytes staging() const { return {}; }
  /// Meets the others of the group now, instead of at the first exchange. All ranks of the group call it.
  virtual Status Join() { return Done{}; }
  /// Says before the first message which ways this rank will send or receive on, so that no message need wait until the
  /// other end has come to its first one. All ranks call it.
  virtual Status Connect(std::span<const Route>) { return Done{}; }
  /// Sends a copy of `data` and never waits for the receiver: as soon as it returns, the memory is the caller's again
  /// (on a GPU: for what is put on the message's stream after it).
  virtual Status Send(const Message& message, const void* data) = 0;
  /// Begins to wait for a message: `data` belongs to the communicator until Finish.
  virtual Result<Ticket> Receive(const Message& message, void* data) = 0;
};

/// All ranks of a run.
class World {
 public:
  virtual ~World() = default;
  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;
  /// How many of them run on this rank's machine.
  virtual std::int64_t ranks_here() const = 0;
  /// How many of them share this rank's GPU, itself included; 1 as well where ranks have none.
  virtual std::int64_t ranks_on_gpu() const { return 1; }
  /// By what its communicators exchange device memory, for a report: "NCCL 2.28.9"; empty: they take host memory.
  virtual std::string_view how() const { return {}; }
  /// Of this rank's GPU, what its communicators hold to keep messages on their way (Communicator::staging).
  virtual Bytes staging() const { return {}; }
  /// The communicator of the ranks that pass the same colour, in the order of their ranks. All ranks call it.
  virtual Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) = 0;
  /// The largest value that any rank passes.
  virtual double Highest(double value) = 0;
  /// The sum over all ranks.
  virtual double Sum(double value) = 0;
  /// Every rank's text, by rank, on rank 0; nothing on the others.
  virtual std::vector<std::string> GatherTexts(const std::string& text) = 0;
  /// Ends the run on all ranks at once, with this exit code.
  [[noreturn]] virtual void Abort(int exit_code) = 0;
};

/// A run of one rank, without MPI.
std::unique_ptr<World> MakeSingleWorld();

/// MPI_COMM_WORLD. Fails with machine_cannot where MPI cannot be started. At most one may exist in a process.
Result<std::unique_ptr<World>> OpenMpiWorld();

}  // namespace tidemark
