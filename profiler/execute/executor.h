// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/gpu_trace.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/device.h"
#include "profiler/device/lent_rooms.h"
#include "profiler/device/tensor_memory.h"
#include "profiler/execute/batches.h"
#include "profiler/execute/declare.h"
#include "profiler/execute/model.h"
#include "profiler/execute/operation.h"
#include "profiler/execute/rank_groups.h"
#include "profiler/execute/recorder.h"
#include "sim/program/program.h"
#include "traces/place.h"

namespace tidemark {

/// One parameter of the model: its name and which of equal blocks it is of.
using ParameterKey = std::pair<std::string, std::int64_t>;
/// Numbers of each parameter that a rank has, by the first of each stretch.
using ParameterParts = std::map<ParameterKey, std::map<std::int64_t, std::vector<double>>>;

struct ExecutorOptions {
  std::uint64_t seed = 0;
  bool exact = false;                      ///< every floating dtype is fp64; sizes are then not the program's
  bool keep_gradients = false;             ///< those that one update consumes
  std::int64_t kept_update = 1;            ///< which of the training, from 1
  const ExpertChoices* choices = nullptr;  ///< of the first step, which routers follow; none: they choose themselves
  ExpertChoices* kept_choices = nullptr;   ///< where they say what they have chosen in it; none: nowhere
  bool time_work = true;                   ///< of a device with streams; else only whole steps are timed, at no cost
  GpuCapture* capture = nullptr;  ///< says when streams were busy, if it records work; else marks around work do
};

/// What says when a device's streams were busy.
enum class WorkClock : std::uint8_t {
  host,     ///< work is done when it is given: the host's clock
  marks,    ///< marks before and behind work, in its stream
  records,  ///< what CUPTI recorded of kernels, copies and fills
  nobody,   ///< work on streams is not timed (ExecutorOptions::time_work)
};

WorkClock ClockOf(const Device& device, const ExecutorOptions& options);
/// "host", "device_events", "cupti", "none".
std::string_view Name(WorkClock clock);

/// A device that has no more memory, at a request of a step.
struct OutOfMemory {
  Bytes requested, reserved, capacity;
  std::int64_t cache_flushes = 0;
  std::string tensor;
  PhasePlace at;
};

/// What CUPTI recorded of the host in a step.
struct RecordedHost {
  std::int64_t waits = 0;  ///< how often it waited for the GPU, or asked whether it had to
  Nanos waited, overhead;  ///< how long, and what recording took of its time
};

struct StepOutcome {
  std::optional<double> loss;  ///< mean over this rank's microbatches; nothing: none was finished
  Nanos time;
  std::vector<std::int64_t> parameters_changed_at;  ///< microbatches after which parameters changed
  std::optional<OutOfMemory> out_of_memory;         ///< the step ended there
  std::optional<RecordedHost> recorded{};           ///< with WorkClock::records
};

/// Walks a step's unrolled program with real tensors, real arithmetic and real collectives.
///
/// The program says what happens in which order. How large a tensor is, kernels say: before a step runs, its operations
/// are asked for the types of what they make, and a program that says otherwise is refused. All leaves run on the
/// calling thread in the order of issue; a collective is begun where it is issued and finished where the program waits
/// for it, or its stream goes on; so is what a pipeline stage receives. What it sends is on its way at once.
class Executor {
 public:
  /// `batches` gives sample s of step i: rank r of n in microbatch m of M reads samples ((i M + m) n + r) b onwards. Of
  /// pairs there are two, one for each side.
  Executor(const Job& job, const Model& model, const Communicators& groups, std::span<const Batches> batches,
           Device& device, TensorMemory& memory, const ExecutorOptions& options);
  ~Executor();

  /// The next step. Its resident buffers are those that the step before kept; of the first step they are made here.
  /// `poison`: what is filled with NaNs meanwhile, which takes time.
  Result<StepOutcome> Run(const Program& program, std::string_view kind, Poison poison);

  Recorder& recorder() { return recorder_; }
  /// As the optimizer first reads them, before they are clipped: with ExecutorOptions::keep_gradients.
  const ParameterParts& gradients() const { return gradients_; }
  WorkClock clock() const { return clock_; }

 private:
  struct Held {
    kernels::TensorType type;
    TensorMemory::Piece piece;
    std::shared_ptr<const Contents> packed;  ///< Operand::packed
    std::vector<StreamId> users{};           ///< streams that work on it, beside the one that it was born on
    std::shared_ptr<DeviceRoom> on_host{};   ///< of a tensor in host memory, which no allocator knows
  };
  /// When work began on a stream: by the host's clock, and by what the stream had been given; and in which phase.
  struct Started {
    Nanos at;
    std::uint16_t span = 0;
    WorkClock clock = WorkClock::host;
    Device::Mark mark = 0;
  };
  struct Pending {
    Communicator* group = nullptr;
    StreamId stream;
    std::string name;
    Started started;
    std::vector<Communicator::Ticket> tickets{};
    std::vector<std::function<void()>> then{};  ///< what is done with what has come
    bool done = false;
  };
  using Loops = std::span<const std::int64_t>;

  std::pair<std::int64_t, std::int64_t> IndicesOf(const BufferRef& ref, Loops loops) const;
  std::size_t SlotOf(const BufferRef& ref, Loops loops) const;
  const Buffer& BufferOf(const BufferRef& ref) const { return program_->buffers[ref.buffer.index]; }
  std::vector<Operand> OperandsAt(std::span<const BufferRef> refs, Loops loops);
  /// The slot whose memory it is: its own, or that of which it is a view.
  std::size_t MemoryOf(const BufferRef& ref, Loops loops) const;
  void* DataAt(const BufferRef& ref, Loops loops) const;
  /// Work on a stream uses these from now on.
  void UseOn(StreamId stream, std::span<const BufferRef> refs, Loops loops);

  Result<StepOutcome> RunStep(const Program& program, std::string_view kind, Poison poison);
  Status FinishAll();
  void MakeQueues(const Program& program);
  /// A library's call that gives work to the device by itself.
  template <class LibraryCall>
  auto Call(const LibraryCall& call) const {
    std::optional<decltype(call())> answer;
    device_.Call([&] { answer.emplace(call()); });
    return *std::move(answer);
  }
  Status TakeOver(const Program& program);
  Status Connect(const Program& program);
  Status MakeResident(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1);
  Status Allocate(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1,
                  const kernels::TensorType& type);
  void AllocateOnHost(std::size_t slot, const kernels::TensorType& type);
  void Release(const Buffer& buffer, std::size_t slot, std::int64_t index0, std::int64_t index1,
               std::vector<Device::Mark> uses);
  void Fill(const Buffer& buffer, std::int64_t index, const Held& held) const;
  OperationContext ContextOf(const Compute& node);
  /// Whether parameters that change now are the first to change since the last microbatch: an update has many kernels.
  bool BeginsUpdate() const {
    const std::vector<std::int64_t>& changed = outcome_.parameters_changed_at;
    return changed.empty() || changed.back() != microbatch_;
  }
  /// Which update of the training one that happens now is part of, from 1.
  std::int64_t ThisUpdate() const { return updates_ + (BeginsUpdate() ? 1 : 0); }
  std::uint64_t SeedOf(std::string_view name, std::int64_t layer) const;

  Status Do(const Alloc& leaf, Loops loops);
  Status Do(const Free& leaf, Loops loops);
  Status Do(const Compute& leaf, Loops loops);
  Status Do(const Collective& leaf, Loops loops);
  Status Do(const Copy& leaf, Loops loops);
  Status Do(const Scale& leaf, Loops loops);
  Status Do(const Record& leaf, Loops loops);
  Status Do(const Wait& leaf, Loops loops);
  Status Do(const HostSync& leaf, Loops loops);
  Status Do(const Begin& leaf, Loops loops);
  Status Do(const End& leaf, Loops loops);
  Status Do(const Send& leaf, Loops loops);
  Status Do(const Recv& leaf, Loops loops);
  Status Do(const Repeat& leaf, Loops loops);

  Message MessageOf(ChannelId channel, StreamId stream, std::int64_t peer, const kernels::TensorType& type) const;
  Status BeginAll(const Collective& leaf, Loops loops, std::span<const Operand> reads, std::span<const Operand> writes,
                  Pending& pending);
  Status LeaveToStream(Pending& pending);
  Status Shift(const Collective& leaf, Loops loops, std::span<const Operand> from, std::span<const Operand> to,
               Pending& pending);
  Status GatherFlat(const Collective& leaf, std::span<const Operand> parts, Pending& pending);
  /// What a reduction's result is multiplied by.
  static double FactorOf(const Collective& leaf, std::int64_t ranks);
  /// One operation under way, of as many exchanges as are begun with it.
  Pending PendingOf(StreamId stream, NameId name, Communicator& group) {
    const std::string& named = program_->names[name.index];
    return {&group, stream, named, StartOn(stream, named, &group)};
  }
  Status Issue(Pending& pending, Exchange exchange, std::function<void()> then);
  Status BeginJoint(const Collective& leaf, std::span<const Operand> operands, Pending& pending);
  Status BeginExchange(const Collective& leaf, const Operand& from, const Operand& to, Pending& pending);
  Status Finish(Pending& pending);
  Status FinishStream(StreamId stream);
  void NoteLoss(const OperationContext& context, std::span<const kernels::Tensor> outputs, StreamId stream);
  kernels::Tensor loss_sum() const { return {{DType::fp64, 1}, loss_sum_->data()}; }
  /// `group`: whose exchange it is, of work that is one.
  Started StartOn(StreamId stream, const std::string& name, const Communicator* group = nullptr);
  void EndOn(StreamId stream, const std::string& name, const Started& started);
  void TakeTimes();
  void TakeRecordedTimes();
  void Note(const Compute& leaf, std::span<const Operand> reads, std::span<const Operand> writes);
  bool Measures(const Compute& leaf) const;
  void KeepGradients(std::span<const Operand> reads, const std::function<Contents(const Contents&)>& counted,
                     bool reads_buckets);
  /// Which of how many ranks this one is that read different samples.
  std::pair<std::int64_t, std::int64_t> DataRank() const;
  SequenceShare ShareOfSequences() const;
  std::int64_t FirstSample(std::int64_t microbatch) const;
  /// What a copy from the host brings of the training's samples: ids or labels.
  std::vector<std::int64_t> SamplesOf(std::string_view copy, const Buffer& to) const;
  CountedLabels CountLabels() const;
  /// The labels of a microbatch, where kernels of this stream read them until the next microbatch's come.
  kernels::ConstTensor PutLabels(StreamId stream);

  const Job& job_;
  const Model& model_;
  const Communicators& groups_;
  std::span<const Batches> batches_;
  Device& device_;
  TensorMemory& memory_;
  ExecutorOptions options_;
  Recorder recorder_;

  const Program* program_ = nullptr;
  Poison poison_ = Poison::nothing;  ///< of host memory, in this step
  std::vector<std::size_t> first_slot_;
  std::vector<Held> held_;  ///< by slot
  DeclaredTypes types_;
  NormedTensors normed_;
  ContentsTable contents_;  ///< of program_
  std::size_t next_allocation_ = 0;
  std::vector<Pending> pending_;
  std::vector<std::pair<Communicator*, Communicator::Ticket>> on_streams_;
  struct Recorded {
    std::vector<std::size_t> under_way;  ///< collectives that it stands for
    StreamId stream;
    Device::Mark mark = 0;
    bool is_marked = false;
  };
  std::vector<Recorded> recorded_;  ///< by event
  /// Work whose times only the device knows, in the order of issue.
  struct Timed {
    StreamId stream;
    std::string name;
    std::uint16_t span = 0;
    Device::Mark start = 0, end = 0;
  };
  std::vector<Timed> timed_;
  WorkClock clock_;
  std::vector<IssuedOperation> issued_;  ///< to be found in records, of this step
  std::uint64_t first_issued_ = 0;       ///< their first one's number
  Device::Mark step_mark_ = 0;           ///< reached at step_start_
  Nanos step_start_;
  std::int64_t step_ = 0, updates_ = 0, microbatch_ = -1;
  Side side_ = Side::none;
  double loss_scale_ = 1;
  CountedLabels labels_;  ///< of the loss that is being computed, of sequences of different lengths
  std::unique_ptr<DeviceRoom> labels_room_;
  std::pair<std::int64_t, std::int64_t> labels_of_{-1, -1};  ///< step and microbatch
  RenamedTensor renamed_;
  LentRooms rooms_{device_};
  ExpertCounts expert_counts_;
  std::unique_ptr<DeviceRoom> loss_sum_;  ///< one fp64
  std::int64_t losses_ = 0;
  StepOutcome outcome_;
  ParameterParts gradients_;
};

}  // namespace tidemark
