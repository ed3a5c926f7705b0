// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {

// Rows that are looked at several times are read once: a team that is no larger than they need keeps them in registers,
// a few packs of each thread. All of a thread's reads are then under way at a time, and a processor has many rows at
// work, of which few wait for a barrier. Sums are joined in Team's order with that many threads.

/// Packs of a row that a thread keeps, at most.
inline constexpr int kHeld = 4;

/// A pack of a row, and which of a thread's it is.
struct HeldAt : PackAt {
  int slot;
};

/// What a team holds of a view. The host reads it again.
template <class View>
struct Held {
#ifdef __CUDA_ARCH__
  decltype(std::declval<View>().Stored(PackAt{})) packs[kHeld];
  __device__ auto operator[](HeldAt at) const { return View::Widen(packs[at.slot]); }
#else
  View view;
  std::int64_t first;
  auto operator[](HeldAt at) const { return view[PackAt{first + at.slot * kPack}]; }
#endif
};

/// Sums of a row's columns, over the rows that a team comes to.
template <class C>
struct HeldSums {
#ifdef __CUDA_ARCH__
  Pack<C> packs[kHeld] = {};
  __device__ Pack<C>& operator[](HeldAt at) { return packs[at.slot]; }
#else
  Pack<C> packs[kHeld * kThreads] = {};
  Pack<C>& operator[](HeldAt at) { return packs[at.slot]; }
#endif
};

/// For rows of `width`.
class HoldingTeam {
 public:
  static bool Holds(std::int64_t width) { return width % kPack == 0 && width <= kThreads * kHeld * kPack; }
  explicit HoldingTeam(std::int64_t width) : packs_(static_cast<int>(width / kPack)) {
    while (threads_ * kHeld < packs_) {
      threads_ *= 2;
    }
  }

  int threads() const { return threads_; }

  /// What a view has at `at - less`, for `at` of the row from `begin` on; for those of other rows the same.
  template <class View>
  __host__ __device__ Held<View> Hold(const View& view, std::int64_t begin, std::int64_t less) const {
#ifdef __CUDA_ARCH__
    Held<View> held;
    EachPack(begin, [&](HeldAt at) { held.packs[at.slot] = view.Stored(at - less); });
    return held;
#else
    return {view, begin - less};
#endif
  }

  /// Calls `body(at)` for the packs from `begin` to the row's end.
  template <class Body>
  __host__ __device__ void Each(std::int64_t begin, std::int64_t, const Body& body) const {
    EachPack(begin, body);
  }
  /// Calls `body()` on one thread.
  template <class Body>
  __host__ __device__ void Once(const Body& body) const {
    if (rank() == 0) {
      body();
    }
  }

  /// Of `term(at)`, the same on all threads, which it needs.
  template <class C, class Term>
  __host__ __device__ C Sum(std::int64_t begin, std::int64_t, const Term& term) const {
#ifdef __CUDA_ARCH__
    C value = 0;
    EachPack(begin, [&](HeldAt at) { value = Fold(value, term(at), std::plus<>()); });
    return JoinThreads(value, threads_, std::plus<>());
#else
    C values[kThreads] = {};
    EachPack(begin, [&](HeldAt at) {
      C& value = values[at.slot % threads_];
      value = Fold(value, term(at), std::plus<>());
    });
    return JoinValues(values, threads_, std::plus<>());
#endif
  }

 private:
  __host__ __device__ int rank() const { return Team().rank(); }

  /// On the host a thread has all of the row's.
  template <class Body>
  __host__ __device__ void EachPack(std::int64_t begin, const Body& body) const {
#ifdef __CUDA_ARCH__
    TIDEMARK_UNROLL
    for (int slot = 0; slot < kHeld; ++slot) {
      if (const int i = rank() + slot * threads_; i < packs_) {
        body(HeldAt{{begin + i * kPack}, slot});
      }
    }
#else
    for (int i = 0; i < packs_; ++i) {
      body(HeldAt{{begin + i * kPack}, i});
    }
#endif
  }

  int packs_, threads_ = kWarp;
};

}  // namespace tidemark::kernels::cuda
