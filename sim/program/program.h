// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/id.h"
#include "base/quantity.h"
#include "base/rational.h"
#include "models/network/block.h"
#include "models/network/operator.h"
#include "sim/program/holding.h"

namespace tidemark {

// The StepProgram: what one rank of one role does in one optimizer step, in the order in which its host issues it.
// Everything downstream (closed form, simulation, execution) reads this and asks nothing about the strategy.
//
// It is a tree kept flat: `nodes` in pre-order, where a Repeat is followed by the `size` nodes of its body. A sequence
// is just nodes one after the other. Names live in tables; nodes hold ids.

using NameId = Id<struct NameTag>;
using BufferId = Id<struct BufferTag>;  ///< a family of equal buffers
using StreamId = Id<struct StreamTag>;  ///< stream 0 is the host
using EventId = Id<struct EventTag>;
using GroupId = Id<struct GroupTag>;
using ChannelId = Id<struct ChannelTag>;
using LoopId = Id<struct LoopTag>;
using FlightId = Id<struct FlightTag>;  ///< collectives of one stream, from the first one's issue to the wait for them
using FlightSetId = Id<struct FlightSetTag>;

/// One coordinate of a buffer family: a constant (no loop), or loop variable + offset, taken modulo `modulus` if not 0.
struct Index {
  LoopId loop;
  std::int64_t offset = 0;
  std::int64_t modulus = 0;
  friend bool operator==(const Index&, const Index&) = default;
};

/// One buffer of a family. A family without extents has one buffer, [0][0].
struct BufferRef {
  BufferId buffer;
  std::array<Index, 2> index;
  friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

enum class Place : std::uint8_t { device, host };

/// Where a view lies: from element `first` of a buffer on, which is of the view's dtype where that is not 0.
struct BufferSlice {
  BufferId of;
  std::int64_t first = 0;
  friend bool operator==(const BufferSlice&, const BufferSlice&) = default;
};

/// A family of `extents[0] * extents[1]` buffers of equal size; or of equal views, which have neither memory nor a life
/// of their own, but that of buffers which stand before them in the table:
/// - where `base` is valid, each is another name for the first bytes of that one buffer, and has a value: what was last
///   written under its name. Where another view of the base was written since, that value is gone (hazards.h);
/// - where there are `slices`, each has one to itself. Slices of a buffer do not overlap, and it is only allocated and
///   freed itself, as a bucket of gradients is.
struct Buffer {
  std::string name;
  Category category = Category::activation;
  DType dtype = DType::bf16;
  std::int64_t elements = 0;  ///< of one buffer
  std::array<std::int64_t, 2> extents{1, 1};
  StreamId stream;  ///< of birth: the allocator gives its memory back to this stream's pool
  Place place = Place::device;
  bool resident = false;  ///< alive when the step begins
  bool kept = false;      ///< alive when the step ends
  BufferId base{};        ///< valid: these are views of it
  /// What it holds of the model's numbers, one stretch behind the other. None: what its name ends in ("gradient
  /// of layer.wq"), whole, or nothing of the model.
  std::vector<Holding> holds{};
  std::vector<BufferSlice> slices{};  ///< where these are views, each with bytes to itself: one for each of the family

  bool is_view() const { return base.valid() || !slices.empty(); }
  /// Where a view's member lies, which is counted along the last extent first.
  BufferSlice MemoryOf(std::int64_t member) const {
    return slices.empty() ? BufferSlice{base, 0} : slices[static_cast<std::size_t>(member)];
  }
  Bytes bytes() const { return SizeOf(dtype) * elements; }
  std::int64_t count() const { return extents[0] * extents[1]; }
};

enum class StreamKind : std::uint8_t { host, compute, collective, peer, copy };

struct Stream {
  std::string name;
  StreamKind kind = StreamKind::compute;
};

/// Ranks that communicate. `ranks_per_node` tells how many of them share a node.
struct Group {
  std::string name;  ///< dp, tp, cp, pp, ep, replicas
  std::int64_t size = 1;
  std::int64_t ranks_per_node = 1;
};

/// Messages from one role to another, in order. Both ends name it alike.
struct Channel {
  std::string name;
  std::int64_t from_role = 0, to_role = 0;
  bool crosses_nodes = false;
};

/// Four are GradCache's, whose step is three passes: A, forward without gradients, which keeps representations only; B,
/// the loss over all of them with its gradient; C, forward again and backward, chunk by chunk.
enum class Phase : std::uint8_t {
  load,
  represent,       ///< "A_forward"
  loss,            ///< "B_loss"
  chunk_forward,   ///< "C_forward"
  chunk_backward,  ///< "C_backward"
  forward,
  backward,
  reduce,
  optimizer,
  gather
};
inline constexpr std::size_t kPhases = 10;

/// The input of a dual encoder that a chunk is cut from: the first (queries) or the second (passages).
enum class Side : std::uint8_t { none, query, passage };
inline constexpr std::size_t kSides = 3;

enum class Work : std::uint8_t { compute, recompute, optimizer };  ///< which part of the step's time a kernel is

struct Alloc {
  BufferRef buffer;
};

struct Free {
  BufferRef buffer;
  /// Streams that used it were recorded (record_stream): nobody waits for them here, and the allocator hands the memory
  /// out again only when they are done. It stops counting as allocated at once all the same.
  bool recorded = false;
};

/// A kernel on `stream`.
struct Compute {
  NameId name;
  Operator op;
  StreamId stream;
  Work work = Work::compute;
  Rational scale{1};  ///< what it writes is multiplied by this: the loss's 1/M where a backward pass begins
  std::vector<BufferRef> reads, writes;
  /// Only this rank's part of the larger buffers counts (its shard of the group "dp"): of what it reads for an update
  /// or a norm, of what it writes where a shard is added back or stored.
  bool own_part = false;
  /// The weight gradients that it makes are those of this tensor-parallel rank's heads only. (It has no own part then.)
  bool own_heads = false;
  FlightSetId beside = {};  ///< set by a pass: what is in flight when it is issued; not valid: nothing
};

/// All ranks of `group` take part. `payload_elements` counts the *full* buffer; wire bytes follow from kind and size.
struct Collective {
  NameId name;
  CollectiveKind kind = CollectiveKind::all_reduce;
  Reduction reduction = Reduction::none;
  Rational scale{1};  ///< applied to each rank's contribution (premul)
  GroupId group;
  DType dtype = DType::bf16;
  std::int64_t payload_elements = 0;
  StreamId stream;
  std::vector<BufferRef> reads, writes;
  FlightId flight = {};  ///< set by a pass; not valid: no kernel is beside it

  Bytes payload() const { return SizeOf(dtype) * payload_elements; }
};

/// Puts a message into `channel`; the sender goes on as soon as its stream has pushed it out.
struct Send {
  NameId name;
  ChannelId channel;
  StreamId stream;
  BufferRef buffer;
};

/// Takes the oldest message of `channel`; done when it has arrived.
struct Recv {
  NameId name;
  ChannelId channel;
  StreamId stream;
  BufferRef buffer;
};

/// Host to device or back, `bytes` over the host link.
struct Copy {
  NameId name;
  StreamId stream;
  Bytes bytes;
  std::vector<BufferRef> reads, writes;
};

/// Multiplies the value in `buffer` by an exact factor (1/M, 1/N).
struct Scale {
  NameId name;
  Rational factor{1};
  StreamId stream;
  BufferRef buffer;
};

/// `event` now stands for all work issued to `stream` so far.
struct Record {
  EventId event;
  StreamId stream;
};

/// Work issued to `stream` from now on starts after `event`.
struct Wait {
  EventId event;
  StreamId stream;
};

/// The host waits for one stream, or for the whole device (invalid id).
struct HostSync {
  StreamId stream;
};

struct Begin {
  Phase phase = Phase::forward;
  Index microbatch;        ///< -1: the phase belongs to the whole step
  Side side = Side::none;  ///< otherwise `microbatch` counts the chunks of this side, from 0 on each
};

struct End {
  Phase phase = Phase::forward;
};

/// Runs the next `size` nodes `count` times (at least once); the loop variable is from, from + step, ...
struct Repeat {
  LoopId loop;
  std::int64_t count = 1;
  std::int64_t from = 0;
  std::int64_t step = 1;  ///< not 0; a body of several blocks steps over as many
  std::uint32_t size = 0;
};

using Node =
    std::variant<Alloc, Free, Compute, Collective, Send, Recv, Copy, Scale, Record, Wait, HostSync, Begin, End, Repeat>;

/// Equal blocks that are layers of the model. Operations and tensors of a block B are called "B.<name>" (layers.h).
struct LayerRun {
  std::string block;       ///< "layer"
  std::int64_t first = 0;  ///< the model's number of the first of them
  friend bool operator==(const LayerRun&, const LayerRun&) = default;
};

/// The program of one role. `ranks` ranks run it.
struct Program {
  std::string role;  ///< "stage 0"
  std::int64_t role_index = 0;
  std::int64_t ranks = 1;
  std::vector<std::string> names;  ///< of operations
  std::vector<Buffer> buffers;
  std::vector<Stream> streams;  ///< [0] is the host
  std::vector<std::string> events;
  std::vector<Group> groups;
  std::vector<Channel> channels;
  std::vector<std::string> loops;
  std::vector<std::vector<FlightId>> flight_sets;  ///< what kernels are beside; each ascends, no two are alike
  std::vector<LayerRun> layers;                    ///< those that do not begin with the model's layer 0
  std::vector<Node> nodes;

  /// None where it is beside nothing, or beside a set that is not there (Verify says so).
  std::span<const FlightId> FlightsBeside(const Compute& compute) const {
    return compute.beside.index < flight_sets.size() ? std::span<const FlightId>(flight_sets[compute.beside.index])
                                                     : std::span<const FlightId>();
  }
};

/// All distinct roles of a job, first stage first. One simulation runs them together.
struct StepProgram {
  std::vector<Program> roles;
};

std::string_view Name(Phase phase);
/// Empty for Side::none.
std::string_view Name(Side side);
std::string_view Name(CollectiveKind kind);
std::string_view Name(StreamKind kind);
std::string_view Name(Work work);
std::string_view Name(Reduction reduction);

/// Wire bytes of one rank for a ring algorithm, rounded down per collective: S (n-1)/n, twice that for all-reduce; S
/// for broadcast and reduce. The payload S is the full buffer.
Bytes WireBytes(CollectiveKind kind, Bytes payload, std::int64_t group_size);

}  // namespace tidemark
