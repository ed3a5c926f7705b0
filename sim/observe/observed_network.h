// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "models/network/network.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

// A trace of one microbatch of any model, on one rank, is enough to ask about every strategy: what the forward pass
// saves for the backward pass, what either needs beside it, how large the gradients are and how long both take become
// the rows of a table network. Parameters, optimizer, communication and accumulation are the strategy's again.

struct ObserveOptions {
  std::int64_t samples = 1;       ///< of the measured microbatch
  DType gradients = DType::fp32;  ///< of traces that do not tell it
  std::size_t most_rows = 64;     ///< beyond it neighbours share a row, each row with about as many bytes
};

struct ObservedNetwork {
  Table table;
  PhasePlace microbatch;        ///< its forward pass
  Bytes saved;                  ///< by the forward pass, until the backward pass has read it
  Bytes gradients;              ///< of one microbatch, all of them
  DType dtype = DType::fp32;    ///< of the gradients
  bool tells_dtype = false;     ///< else it is that of the options
  std::int64_t parameters = 0;  ///< trained ones: each has a gradient
  Bytes before;                 ///< alive before the microbatch: weights, optimizer state, what has no gradient
  Bytes peak;                   ///< the most that was alive of all this at once
  Bytes table_peak;             ///< the same by the table; more where a row's gradients and saved tensors never met
  bool tells_times = false;
  std::vector<std::string> notes;  ///< what could not be told, a sentence each
};

/// The network of the last microbatch of a sound trace whose backward pass leaves gradients: the first of a step where
/// gradients are set to none.
///
/// Rows follow the backward pass, in which memory is highest. A row begins with the birth of a gradient behind a free
/// of something saved, and what is freed up to the next row is what it has saved; where annotations within the forward
/// pass ("layer 3") divide it, rows between two of them are one. What one row needs beside saved tensors and gradients
/// is the highest total while it runs less these, so that the table's total is never below the measured one. What is
/// held beyond the backward pass (a loss somebody keeps, the input) counts as saved by the first row, the last to go.
///
/// Fails with bad_input where there is no forward pass with its backward pass behind it, where no backward pass leaves
/// gradients, or where these are parts of whole ones.
Result<ObservedNetwork> ObserveNetwork(const Trace& trace, const ObserveOptions& options);

}  // namespace tidemark
