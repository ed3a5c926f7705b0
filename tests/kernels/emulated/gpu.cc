// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulated/gpu.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tidemark::emulated {
namespace {

constexpr unsigned kWarpSize = 32;
constexpr std::size_t kStackBytes = std::size_t{256} << 10, kShared = 64;  // of a lane, in a warp's hands

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "a kernel on an emulated GPU: %s\n", what);
  std::abort();
}

/// Those who wait until all have come; then the next round begins.
struct Barrier {
  unsigned expected = 0, arrived = 0;
  std::uint64_t round = 0;
};

struct Warp {
  Barrier barrier;
  alignas(64) std::byte shared[2][kWarpSize][kShared];  ///< by the parity of a thread's shares
};

struct Copy {
  void* to;
  const void* from;
  int size, bytes;
};

/// A thread of a block, on a stack of its own that it keeps from block to block.
struct Fiber {
  boost::context::fiber context;  ///< while others run
  Index index;
  unsigned number = 0;  ///< in the block
  bool done = true;
  const Barrier* waits = nullptr;
  std::uint64_t round = 0;  ///< that it waits for the end of
  unsigned shares = 0, ors = 0;
  std::vector<Copy> copies;
};

/// One block at a time.
class Gpu {
 public:
  void Run(unsigned blocks, Size threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
    const unsigned count = threads.x * threads.y;
    if (count == 0 || count > 1024 || count % kWarpSize != 0) {
      Fail("a block of no whole warps, or of too many");
    }
    while (fibers_.size() < count) {
      AddFiber();
    }
    kernel_ = &kernel;
    grid_ = {blocks};
    shared_.resize(shared_bytes + kAlignment);
    for (unsigned i = 0; i < blocks; ++i) {
      block_ = {is_reversed_ ? blocks - 1 - i : i};
      RunBlock(threads, count);
    }
    is_reversed_ = !is_reversed_;
  }

  Fiber& current() { return *current_; }
  const Index& block() const { return block_; }
  const Size& grid() const { return grid_; }
  Warp& warp() { return warps_[current_->number / kWarpSize]; }
  Barrier& of_block() { return barrier_; }
  bool& any(unsigned parity) { return any_[parity]; }
  unsigned char* shared() {
    const auto begin = reinterpret_cast<std::uintptr_t>(shared_.data());
    return shared_.data() + (kAlignment - begin % kAlignment) % kAlignment;
  }

  void Wait(Barrier& barrier) {
    Fiber& self = *current_;
    if (++barrier.arrived == barrier.expected) {
      barrier.arrived = 0;
      ++barrier.round;
      return;
    }
    self.waits = &barrier;
    self.round = barrier.round;
    Yield();
  }

 private:
  static constexpr std::size_t kAlignment = 128;

  void AddFiber() {
    Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
    fiber.number = static_cast<unsigned>(fibers_.size() - 1);
    const auto live = [this](boost::context::fiber&& scheduler) -> boost::context::fiber {
      scheduler_ = std::move(scheduler);
      for (;;) {
        (*kernel_)();
        current_->done = true;
        Yield();
      }
    };
    fiber.context = {std::allocator_arg, boost::context::protected_fixedsize_stack(kStackBytes), live};
  }

  /// Until the scheduler comes back to the calling thread.
  void Yield() { scheduler_ = std::move(scheduler_).resume(); }

  void RunBlock(Size threads, unsigned count) {
    std::memset(shared_.data(), 0xFF, shared_.size());
    barrier_ = {count};
    warps_.resize(count / kWarpSize);
    for (Warp& warp : warps_) {
      warp.barrier = {kWarpSize};
    }
    any_[0] = any_[1] = false;
    for (unsigned i = 0; i < count; ++i) {
      Fiber& fiber = *fibers_[i];
      fiber.index = {i % threads.x, i / threads.x};
      fiber.done = false;
      fiber.waits = nullptr;
      fiber.shares = fiber.ors = 0;
    }
    for (unsigned left = count; left > 0;) {
      const unsigned before = left;
      bool goes_on = false;
      for (unsigned i = 0; i < count; ++i) {
        Fiber& fiber = *fibers_[is_reversed_ ? count - 1 - i : i];
        if (fiber.done || (fiber.waits != nullptr && fiber.waits->round == fiber.round)) {
          continue;
        }
        goes_on = true;
        fiber.waits = nullptr;
        current_ = &fiber;
        fiber.context = std::move(fiber.context).resume();
        left -= fiber.done ? 1 : 0;
      }
      if (!goes_on && left == before) {
        Fail("threads wait for others that do not come");
      }
    }
    for (unsigned i = 0; i < count; ++i) {
      if (!fibers_[i]->copies.empty()) {
        Fail("a copy into shared memory that nobody waited for");
      }
    }
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<unsigned char> shared_;
  Barrier barrier_;
  bool any_[2] = {};
  bool is_reversed_ = false;
  const std::function<void()>* kernel_ = nullptr;
  Index block_;
  Size grid_{1};
  Fiber* current_ = nullptr;
  boost::context::fiber scheduler_;  ///< while a thread runs
};

Gpu& TheGpu() {
  static Gpu gpu;
  return gpu;
}

float Widened(std::uint16_t bits, bool is_bf16) {
  return is_bf16 ? static_cast<float>(Eigen::numext::bit_cast<Eigen::bfloat16>(bits))
                 : static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits));
}

/// PTX ISA, ldmatrix.x4.
void LoadMatrices(unsigned (&to)[4], const void* from, bool turned) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    Fail("ldmatrix of a row that does not begin at a multiple of 16 bytes");
  }
  const std::byte* const all = Share(&from, sizeof(from));
  const unsigned row = Lane() / 4, column = Lane() % 4 * 2;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](unsigned r, unsigned c) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(SharedBy<const void*>(all, matrix * 8 + r)) + 2 * c, sizeof(bits));
      return unsigned{bits};
    };
    to[matrix] = turned ? at(column, row) | at(column + 1, row) << 16 : at(row, column) | at(row, column + 1) << 16;
  }
  SyncWarp();  // what was read may be written from now on
}

/// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".
void AddProduct(float (&sums)[4], const unsigned (&left)[4], const unsigned* right, bool is_bf16) {
  const std::array<unsigned, 6> mine = {left[0], left[1], left[2], left[3], right[0], right[1]};
  const std::byte* const all = Share(&mine, sizeof(mine));
  const auto element = [&](unsigned lane, unsigned i) {
    const unsigned word = SharedBy<std::array<unsigned, 6>>(all, lane)[i / 2];
    return Widened(static_cast<std::uint16_t>(word >> i % 2 * 16), is_bf16);
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = Lane() / 4 + (i >= 2 ? 8 : 0), column = Lane() % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const float a = element(row % 8 * 4 + k % 8 / 2, (k >= 8 ? 4U : 0U) + (row >= 8 ? 2U : 0U) + k % 2);
      const float b = element(column * 4 + k % 8 / 2, 8 + (k >= 8 ? 2U : 0U) + k % 2);
      sums[i] += a * b;
    }
  }
}

}  // namespace

const Index& ThreadIndex() { return TheGpu().current().index; }
const Index& BlockIndex() { return TheGpu().block(); }
const Size& GridSize() { return TheGpu().grid(); }
unsigned Lane() { return TheGpu().current().number % kWarpSize; }

void Launch(unsigned blocks, Size threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  TheGpu().Run(blocks, threads, shared_bytes, kernel);
}
unsigned char* SharedMemory() { return TheGpu().shared(); }

void SyncWarp() { TheGpu().Wait(TheGpu().warp().barrier); }
void SyncBlock() { TheGpu().Wait(TheGpu().of_block()); }

/// Two results in turns: that of the next time is empty again before anybody comes to it.
int SyncBlockOr(int any) {
  const unsigned parity = TheGpu().current().ors++ % 2;
  bool& result = TheGpu().any(parity);
  result = result || any != 0;
  SyncBlock();
  TheGpu().any(1 - parity) = false;
  const int all = result ? 1 : 0;
  SyncBlock();
  return all;
}

const std::byte* Share(const void* mine, std::size_t bytes) {
  if (bytes > kShared) {
    Fail("more than a warp's threads hand to each other");
  }
  Warp& warp = TheGpu().warp();
  auto& all = warp.shared[TheGpu().current().shares++ % 2];
  std::memcpy(all[Lane()], mine, bytes);
  SyncWarp();
  return all[0];
}

void CopyAsync(void* to, const void* from, int size, int bytes) {
  std::memset(to, 0xFF, static_cast<std::size_t>(size));
  TheGpu().current().copies.push_back({to, from, size, bytes});
}
void WaitForCopies() {
  for (const Copy& copy : std::exchange(TheGpu().current().copies, {})) {
    std::memset(copy.to, 0, static_cast<std::size_t>(copy.size));
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
  }
}

}  // namespace tidemark::emulated

namespace tidemark::kernels::cuda::ptx {

void LoadMatrices(unsigned (&to)[4], const void* from) { emulated::LoadMatrices(to, from, false); }
void LoadTurnedMatrices(unsigned (&to)[4], const void* from) { emulated::LoadMatrices(to, from, true); }
void AddProductOfBf16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  emulated::AddProduct(sums, left, right, true);
}
void AddProductOfFp16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  emulated::AddProduct(sums, left, right, false);
}

}  // namespace tidemark::kernels::cuda::ptx
