// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/ptx.cuh"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// A GPU's memory is busy while enough bytes are under way, which threads that read two at a time cannot see to. Bodies
// of pointwise kernels therefore are of either: one element, at a std::int64_t, or the neighbours of a pack, at a
// PackAt.
//
//   template <class At>
//   void operator()(At at) const { sum.Set(at, Map([](C a, C b) { return a + b; }, first[at], second[at])); }

/// Neighbours that a thread reads and writes together. Of two-byte elements that is one access of 16 bytes, the widest;
/// of wider ones several.
inline constexpr int kPack = 8;

template <class C>
inline constexpr std::size_t kPackAlignment = kPack * sizeof(C) < 16 ? kPack * sizeof(C) : 16;

template <class C>
struct alignas(kPackAlignment<C>) Pack {
  C lanes[kPack];
};

/// The pack that begins with element `first`.
struct PackAt {
  std::int64_t first;
  friend __host__ __device__ PackAt operator+(PackAt at, std::int64_t offset) { return {at.first + offset}; }
  friend __host__ __device__ PackAt operator-(PackAt at, std::int64_t offset) { return {at.first - offset}; }
};

template <class Body>
inline constexpr bool kTakesPacks = std::is_invocable_v<const Body&, PackAt>;

template <class T>
inline constexpr bool kIsPack = false;
template <class C>
inline constexpr bool kIsPack<Pack<C>> = true;

/// f(value...), of packs lane by lane.
template <class F, class... C>
requires(!(kIsPack<C> || ...)) __host__ __device__ inline auto Map(F f, const C&... value) { return f(value...); }
template <class F, class... C>
__host__ __device__ inline auto Map(F f, const Pack<C>&... packs) {
  Pack<decltype(f(packs.lanes[0]...))> result;
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    result.lanes[lane] = f(packs.lanes[lane]...);
  }
  return result;
}

/// Which element it is, for Map.
__host__ __device__ inline std::int64_t IndexOf(std::int64_t i) { return i; }
__host__ __device__ inline Pack<std::int64_t> IndexOf(PackAt at) {
  Pack<std::int64_t> index;
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    index.lanes[lane] = at.first + lane;
  }
  return index;
}

/// The value, in all lanes.
template <class C>
__host__ __device__ inline C Everywhere(std::int64_t, C value) {
  return value;
}
template <class C>
__host__ __device__ inline Pack<C> Everywhere(PackAt at, C value) {
  return Map([&](std::int64_t) { return value; }, IndexOf(at));
}

/// two(value, element), of a pack one lane after the other.
template <class C, class Two>
__host__ __device__ inline C Fold(C value, C element, Two two) {
  return two(value, element);
}
template <class C, class Two>
__host__ __device__ inline C Fold(C value, const Pack<C>& pack, Two two) {
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    value = two(value, pack.lanes[lane]);
  }
  return value;
}

/// A lane that is not known when this is compiled. By comparisons: registers have no addresses, and a GPU would keep
/// the pack in memory.
template <class C>
__host__ __device__ inline C Lane(const Pack<C>& pack, int which) {
  C value = pack.lanes[0];
  TIDEMARK_UNROLL
  for (int lane = 1; lane < kPack; ++lane) {
    value = lane == which ? pack.lanes[lane] : value;
  }
  return value;
}
template <class C>
__host__ __device__ inline void SetLane(Pack<C>& pack, int which, C value) {
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    pack.lanes[lane] = lane == which ? value : pack.lanes[lane];
  }
}

/// of(at), or where the pack goes beyond `end` of(i) for those before it and zeros.
template <class C, class Of>
__host__ __device__ inline Pack<C> PackBefore(std::int64_t end, PackAt at, Of of) {
  if (at.first + kPack <= end) {
    return of(at);
  }
  Pack<C> pack = {};
  TIDEMARK_NO_UNROLL
  for (int lane = 0; at.first + lane < end; ++lane) {
    SetLane<C>(pack, lane, of(at.first + lane));
  }
  return pack;
}

/// The other way: to(at, pack), or where it goes beyond `end` to(i, lane) for those before it.
template <class C, class To>
__host__ __device__ inline void EachBefore(std::int64_t end, PackAt at, const Pack<C>& pack, To to) {
  if (at.first + kPack <= end) {
    to(at, pack);
    return;
  }
  TIDEMARK_NO_UNROLL
  for (int lane = 0; at.first + lane < end; ++lane) {
    to(at.first + lane, Lane(pack, lane));
  }
}

/// Where it lies in memory: at once where it is aligned to that, which packs are of tensors that begin with blocks of
/// memory and whose rows are multiples of kPack. The host's compiler is not asked to look: GCC 12 takes both ways for
/// one, the aligned (DropoutForward at -O3 had no test of an address left).
template <class T>
__host__ __device__ inline T Read(const T* from, std::int64_t i) {
  return from[i];
}
template <class T>
__host__ __device__ inline Pack<T> Read(const T* from, PackAt at) {
  from += at.first;
  Pack<T> pack;
#ifdef __CUDA_ARCH__
  if (reinterpret_cast<std::uintptr_t>(from) % alignof(Pack<T>) == 0) {
    return *reinterpret_cast<const Pack<T>*>(from);
  }
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    pack.lanes[lane] = from[lane];
  }
#else
  std::memcpy(&pack, from, sizeof(pack));
#endif
  return pack;
}
template <class T>
__host__ __device__ inline void Write(T value, T* to, std::int64_t i) {
  to[i] = value;
}
template <class T>
__host__ __device__ inline void Write(const Pack<T>& pack, T* to, PackAt at) {
  to += at.first;
#ifdef __CUDA_ARCH__
  if (reinterpret_cast<std::uintptr_t>(to) % alignof(Pack<T>) == 0) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
    return;
  }
  TIDEMARK_UNROLL
  for (int lane = 0; lane < kPack; ++lane) {
    to[lane] = pack.lanes[lane];
  }
#else
  std::memcpy(to, &pack, sizeof(pack));
#endif
}

/// Of packs that are known to be aligned, to 16 bytes.
template <class T>
__host__ __device__ inline Pack<T> ReadAligned(const T* from, PackAt at) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Pack<T>*>(from + at.first);
#else
  return Read(from, at);
#endif
}
template <class T>
__host__ __device__ inline void WriteAligned(const Pack<T>& pack, T* to, PackAt at) {
#ifdef __CUDA_ARCH__
  TIDEMARK_UNROLL
  for (int part = 0; part < static_cast<int>(sizeof(pack) / 16); ++part) {
    unsigned words[4];
    std::memcpy(words, reinterpret_cast<const char*>(&pack) + 16 * part, sizeof(words));
    ptx::StoreWords(reinterpret_cast<char*>(to + at.first) + 16 * part, words);
  }
#else
  Write(pack, to, at);
#endif
}

/// The indices from `begin` to `end`: packs, of which each begins with a multiple of kPack, and the elements beside
/// them, fewer than two packs' worth.
class PackRange {
 public:
  __host__ __device__ PackRange(std::int64_t begin, std::int64_t end)
      : begin_(begin), end_(end > begin ? end : begin), first_((begin + kPack - 1) / kPack * kPack) {
    packs_ = end_ > first_ ? (end_ - first_) / kPack : 0;
    before_ = packs_ > 0 ? first_ - begin_ : end_ - begin_;
  }

  __host__ __device__ std::int64_t packs() const { return packs_; }
  __host__ __device__ PackAt pack(std::int64_t i) const { return {first_ + i * kPack}; }
  __host__ __device__ std::int64_t others() const { return end_ - begin_ - packs_ * kPack; }
  __host__ __device__ std::int64_t other(std::int64_t i) const {
    return i < before_ ? begin_ + i : begin_ + i + packs_ * kPack;
  }

 private:
  std::int64_t begin_, end_, first_, packs_, before_;
};

/// Calls `body(at)` for what thread `rank` of `threads` has of [begin, end): packs if the body takes them, and
/// elements.
template <class Body>
__host__ __device__ inline void EachOf(std::int64_t begin, std::int64_t end, std::int64_t rank, std::int64_t threads,
                                       const Body& body) {
  if constexpr (kTakesPacks<Body>) {
    const PackRange range(begin, end);
    for (std::int64_t i = rank; i < range.packs(); i += threads) {
      body(range.pack(i));
    }
    for (std::int64_t i = rank; i < range.others(); i += threads) {
      body(range.other(i));
    }
  } else {
    for (std::int64_t i = begin + rank; i < end; i += threads) {
      body(i);
    }
  }
}

}  // namespace tidemark::kernels::cuda
