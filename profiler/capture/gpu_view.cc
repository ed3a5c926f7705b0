// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_view.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"
#include "profiler/capture/gpu_memory_use.h"
#include "profiler/capture/gpu_records.h"
#include "profiler/capture/heap.h"
#include "profiler/device/steady_now.h"

namespace tidemark {
namespace {

constexpr std::array kGpuParts = {BudgetPart::tensors,       BudgetPart::rounding,  BudgetPart::cached,
                                  BudgetPart::communication, BudgetPart::workspace, BudgetPart::executor,
                                  BudgetPart::context,       BudgetPart::modules,   BudgetPart::profiler};

Bytes SizeOfStretch(std::uint64_t begin, std::uint64_t end) { return Bytes(static_cast<std::int64_t>(end - begin)); }

/// What libraries have when these records end.
Bytes OfLibraries(const GpuMemoryUse& use) {
  return use.AtEnd(kNccl) + use.AtEnd(kCublas) + use.AtEnd(kCudnn) + use.AtEnd(kCupti);
}

}  // namespace

GpuView::GpuView(TensorMemory& memory, const GpuDevice& device, GpuWatch watch)
    : memory_(memory), device_(device), watch_(std::move(watch)), highest_(BudgetOf(Budget::Memory::gpu, kGpuParts)) {
  memory_.AfterAllocating([this] { LookWhereItGrew(); });
}

GpuView::~GpuView() { memory_.AfterAllocating({}); }

void GpuView::LookWhereItGrew() {
  const Bytes taken = memory_.allocator().device().taken();
  if (taken > most_taken_) {
    most_taken_ = taken;
    Look();
  }
}

void GpuView::Look() {
  const HeapScope scope(HeapOwner::profiler);
  const GpuDriver::Totals totals = device_.driver().totals();
  const GpuBooks& books = device_.books();
  const Bytes used = totals.total - totals.free - books.used_before;
  if (used < highest_.used) {
    return;
  }
  highest_.used = used;
  looked_at_ = SteadyNow();
  const BesideTensors beside = Beside();
  highest_[BudgetPart::tensors] = memory_.live_bytes();
  highest_[BudgetPart::rounding] = beside.rounding;
  highest_[BudgetPart::cached] = beside.cached;
  highest_[BudgetPart::workspace] = books.workspace;
  highest_[BudgetPart::executor] = books.rooms;
  highest_.parts[BudgetPart::context] = books.context;
  staging_ = watch_.staging ? watch_.staging() : Bytes();
}

/// Of a pool nobody knows where its parts lie: it says how much they are.
BesideTensors GpuView::Beside() const {
  if (const GpuPool* const pool = device_.pool()) {
    const GpuDriver::PoolUse use = pool->use();
    return {use.used - memory_.live_bytes(), use.reserved - use.used};
  }
  return CountBesideTensors(
      memory_, [this](const VisitStretch& visit) { device_.memory().ForEachTaken(visit); }, SizeOfStretch);
}

bool GpuView::IsOurs(std::uint64_t address) const {
  const GpuPool* const pool = device_.pool();
  return pool != nullptr ? pool->Has(address) : device_.memory().Has(address);
}

/// By the driver's count around the work that was given until the instant of the budget; what libraries allocated
/// meanwhile is their part, where records tell of it.
Bytes GpuView::CodeBytes(const GpuRecords& records) const {
  const auto recorded_until = [&](Nanos at) {
    return OfLibraries(FollowGpuMemory(records.MemoryBetween(device_.books().context_made, at),
                                       [this](std::uint64_t address) { return IsOurs(address); }));
  };
  Bytes code;
  for (const GpuBooks::Growth& growth : device_.books().code) {
    if (growth.until <= looked_at_) {
      code += growth.bytes - (recorded_until(growth.until) - recorded_until(growth.from));
    }
  }
  return code;
}

/// What CUPTI saw until the instant of the budget.
void GpuView::CountRecords() {
  if (watch_.capture == nullptr || !watch_.capture->reduced().empty()) {
    for (const BudgetPart part : {BudgetPart::communication, BudgetPart::profiler}) {
      highest_.parts[part] = std::nullopt;
    }
    highest_[BudgetPart::modules] = CodeBytes({});
    return;
  }
  const GpuRecords all = watch_.capture->TakeMemory();
  doubts_of_records_ = all.Doubts();
  const GpuRecords records = all.MemoryBetween(device_.books().context_made, looked_at_);
  const GpuMemoryUse use = FollowGpuMemory(records, [this](std::uint64_t address) { return IsOurs(address); });
  highest_[BudgetPart::communication] = use.AtEnd(kNccl) + staging_;
  highest_[BudgetPart::workspace] += use.AtEnd(kCublas) + use.AtEnd(kCudnn);
  highest_[BudgetPart::profiler] = use.AtEnd(kCupti);
  highest_[BudgetPart::modules] = CodeBytes(all);
}

std::vector<std::string> GpuView::DoubtsOfWatching() const {
  std::vector<std::string> doubts = doubts_of_records_;
  const std::string without = watch_.capture == nullptr ? watch_.without_capture : watch_.capture->reduced();
  if (!without.empty()) {
    doubts.push_back(
        fmt::format("{}: the budget rests on the allocator's counts and the driver's totals; what libraries "
                    "take is in the residual, or counted as code where they took it when work was given",
                    without));
  }
  const auto& management = device_.management();
  if (!device_.books().context) {
    doubts.emplace_back(
        "NVIDIA's management library (libnvidia-ml.so.1) does not tell what the context takes: it is left out of what "
        "is used");
  }
  const std::optional<std::int64_t> processes = management ? management->processes() : std::nullopt;
  if (processes && *processes > watch_.ranks_on_gpu) {
    doubts.push_back(
        fmt::format("{} processes use the GPU, and {} of them {} of this run: what others take is counted, "
                    "too, and times are theirs as well",
                    *processes, watch_.ranks_on_gpu, watch_.ranks_on_gpu == 1 ? "is" : "are"));
  }
  if (watch_.ranks_on_gpu > 1) {
    doubts.push_back(
        fmt::format("{} ranks share the GPU, and its driver counts what they take together", watch_.ranks_on_gpu));
  }
  return doubts;
}

Budget GpuView::Close(std::int64_t rank) {
  Look();
  highest_.rank = rank;
  CountRecords();
  highest_.reasons = DoubtsOfWatching();
  for (std::string& doubt : DoubtsOf(highest_)) {
    highest_.reasons.push_back(std::move(doubt));
  }
  return highest_;
}

MakeOutsideView WatchGpu(const GpuDevice& device, const GpuWatch& watch) {
  return [&device, watch](TensorMemory& memory) { return std::make_unique<GpuView>(memory, device, watch); };
}

}  // namespace tidemark
