// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/queue.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::cuda {

/// Where operators are tried: on the host, or on a GPU.
class Place {
 public:
  Place() = default;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  virtual ~Place() = default;

  virtual Queue queue() const = 0;
  /// Whether everything is done once more with a NaN and an infinity in each operand; not where work is slow.
  virtual bool tries_special_numbers() const { return true; }
  /// Whether threads run beside each other, so that a result could be another one each time, whatever the numbers.
  virtual bool runs_threads() const { return true; }
  /// Whether a product may be rounded to its result's dtype before a bias, or what was there, is added (blas.h).
  virtual bool rounds_before_adding() const { return false; }
  /// Of an operand's memory, before the operand: with one it lies as a slice of a tensor may, aligned to its dtype
  /// alone.
  virtual std::int64_t elements_before() const { return 0; }
  /// Memory that the queue's work may touch; of no bytes, too.
  virtual void* Take(std::size_t bytes) const = 0;
  virtual void GiveBack(void* data) const = 0;
  virtual void Put(const void* from, void* to, std::size_t bytes) const = 0;
  /// After all work of the queue.
  virtual void Fetch(const void* from, void* to, std::size_t bytes) const = 0;
};

/// A copy of some numbers in a place.
class Placed {
 public:
  Placed(const Place& place, const Numbers& numbers)
      : place_(&place),
        type_(numbers.type()),
        bytes_before_(static_cast<std::size_t>(place.elements_before() * SizeOf(type_.dtype).count())),
        memory_(place.Take(bytes_before_ + numbers.bytes().size())) {
    place.Put(numbers.bytes().data(), data(), numbers.bytes().size());
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  ~Placed() { place_->GiveBack(memory_); }

  Tensor tensor() const { return {type_, data()}; }
  Numbers Back() const {
    Numbers numbers(type_);
    place_->Fetch(data(), Tensor(numbers).data, numbers.bytes().size());
    return numbers;
  }

 private:
  void* data() const { return memory_ == nullptr ? nullptr : static_cast<char*>(memory_) + bytes_before_; }

  const Place* place_;
  TensorType type_;
  std::size_t bytes_before_;
  void* memory_;
};

}  // namespace tidemark::kernels::cuda
