// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/heads.h"
#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

/// Rows of heads in a tensor, to be copied into tiles of T.
template <class T>
class HeadTiles {
 public:
  using C = WideOf<T>;

  HeadTiles(const ConstTensor& tensor, const HeadRows& rows, std::int64_t head_size)
      : data_(static_cast<const T*>(tensor.data)), elements_(tensor), rows_(rows), head_size_(head_size) {
    const bool is_same = tensor.type.dtype == kStoredDType<T>;
    TIDEMARK_CHECK(is_same || !kIsNarrow<T>);
    in_words_ = is_same && head_size % kPerWord<T> == 0 && rows.stride % kPerWord<T> == 0 &&
                rows.first % kPerWord<T> == 0 && rows.apart % kPerWord<T> == 0 &&
                reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(Word) == 0;
  }

  /// Elements [first, first + kWidth) of a head of `count` tokens from `token` on; zeros beyond these and the head.
  template <int kWidth>
  __host__ __device__ void Load(const TileTeam& team, std::int64_t token, std::int64_t count, std::int64_t head,
                                std::int64_t first, Tile<T, kWidth>& tile) const {
    const std::int64_t begin = token * rows_.stride + rows_.first + head * rows_.apart + first;
    const std::int64_t width = head_size_ - first;
    if (in_words_) {
      constexpr int kWords = kWidth / kPerWord<T>;
      const int rows = static_cast<int>(count), columns = static_cast<int>(width < kWidth ? width : kWidth);
      team.EachIn<kWords>(data_ + begin, rows_.stride, [&](int row, int word, const T* from) {
        const int column = word * kPerWord<T>;
        CopyWord(row < rows && column < columns, from + column, &tile.At(row, column));
      });
    } else {
      team.Each(kSide * kWidth, [&](int i) {
        const int row = i / kWidth, column = i % kWidth;
        const bool is_there = row < count && column < width;
        tile.At(row, column) = is_there ? At(begin + row * rows_.stride + column) : T{};
      });
    }
  }

 private:
  __host__ __device__ T At(std::int64_t i) const {
    if constexpr (kIsNarrow<T>) {
      return data_[i];
    } else {
      return elements_[i];
    }
  }

  const T* data_;
  Input<C> elements_;
  HeadRows rows_;
  std::int64_t head_size_;
  bool in_words_ = false;
};

/// [tokens, heads, head_size] of the same T as the tiles that are copied there.
template <class T>
class HeadsOfTiles {
 public:
  HeadsOfTiles(const Tensor& tensor, std::int64_t heads, std::int64_t head_size)
      : data_(static_cast<T*>(tensor.data)), heads_(heads), head_size_(head_size) {
    TIDEMARK_CHECK(tensor.type.dtype == kStoredDType<T>);
    in_words_ = head_size % kPerWord<T> == 0 && reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(Word) == 0;
  }

  /// Elements [first, first + kWidth) of a head of `count` tokens from `token` on, those that there are. A warp copies
  /// its strip.
  template <int kWidth>
  __host__ __device__ void Store(const TileTeam& team, std::int64_t token, std::int64_t count, std::int64_t head,
                                 std::int64_t first, const Tile<T, kWidth>& tile) const {
    const std::int64_t width = head_size_ - first, stride = heads_ * head_size_;
    T* const to = data_ + token * stride + head * head_size_ + first;
    if (in_words_) {
      team.EachInStrip<kWidth / kPerWord<T>>([&](int row, int word) {
        const int column = word * kPerWord<T>;
        if (row < count && column < width) {
          StoreWord(&tile.At(row, column), to + row * stride + column);
        }
      });
    } else {
      team.EachInStrip<kWidth>([&](int row, int column) {
        if (row < count && column < width) {
          to[row * stride + column] = tile.At(row, column);
        }
      });
    }
  }

 private:
  T* data_;
  std::int64_t heads_, head_size_;
  bool in_words_ = false;
};

}  // namespace tidemark::kernels::cuda
