// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

namespace tidemark {
namespace {

constexpr WholeNumber kTokens{1, 1 << 24};

/// One spelling of a length. It is written where it is that of the job: a number where all sequences are equally long,
/// else the longest and the mean.
Field<Job> LengthAt(std::string key, std::int64_t Job::*length, bool of_uneven) {
  return {std::move(key),
          [length](Job& job, const ConfigValue& value) -> Status {
            TIDEMARK_ASSIGN(job.*length, kTokens.Read(value));
            return Done{};
          },
          [length, of_uneven](const Job& job) {
            return (job.mean_sequence_length > 0) == of_uneven ? kTokens.Write(job.*length) : std::string();
          },
          kTokens.Example()};
}

}  // namespace

std::vector<Field<Job>> SequenceLengthFields() {
  return {LengthAt("sequence_length", &Job::sequence_length, false),
          LengthAt("sequence_length.max", &Job::sequence_length, true),
          LengthAt("sequence_length.mean", &Job::mean_sequence_length, true)};
}

}  // namespace tidemark
