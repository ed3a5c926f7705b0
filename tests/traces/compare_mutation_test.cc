// SPDX-License-Identifier: Apache-2.0
//
// Whatever single thing is changed in a trace, compare sees it, names the tensor and what happened to it, and its
// causes sum to the error of the peak. The traces are random steps; nothing here knows how compare finds out.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "tests/traces/trace_script.h"
#include "traces/compare/compare.h"

namespace tidemark::compare_mutation_test {
namespace {

using Kind = MemoryCauseKind;
using Script = std::vector<Happening>;

/// Residents, microbatches that save a tensor a layer in forward and free it in backward, a transient in each layer of
/// both (under one name), gradients, and an optimizer with a scratch tensor.
Script RandomStep(std::mt19937& random) {
  const auto bytes = [&] { return static_cast<std::int64_t>(64 + random() % 4000); };
  const auto layers = static_cast<std::int32_t>(2 + random() % 4),
             microbatches = static_cast<std::int32_t>(1 + random() % 3);
  std::vector<std::int64_t> saved;
  const std::int64_t transient = bytes(), scratch = bytes(), gradient = bytes();
  Script script;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    script.push_back(Allocated("weights", 512, layer, Category::parameter));
    saved.push_back(bytes());
  }
  for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    script.push_back(Begun("forward", microbatch));
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      script.push_back(Allocated("layers." + std::to_string(layer) + ".saved", saved[static_cast<std::size_t>(layer)]));
      script.push_back(Allocated("transient", transient));
      script.push_back(Freed("transient"));
    }
    script.push_back(Allocated("logits", 3000, 0, Category::logits));
    script.push_back(Ended());
    script.push_back(Begun("backward", microbatch));
    for (std::int32_t layer = layers; layer-- > 0;) {
      script.push_back(Allocated("transient", transient));
      if (layer + 1 == layers) {
        script.push_back(Freed("logits"));
      }
      if (microbatch == 0) {
        script.push_back(Allocated("gradient", gradient, layer, Category::gradient));
      }
      script.push_back(Freed("layers." + std::to_string(layer) + ".saved"));
      script.push_back(Freed("transient"));
    }
    script.push_back(Ended());
  }
  script.push_back(Begun("optimizer"));
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    script.push_back(Allocated("scratch", scratch));
    script.push_back(Freed("gradient", layer));
    script.push_back(Freed("scratch"));
  }
  script.push_back(Ended());
  return script;
}

/// Where the life that begins at `born` ends; nothing: it does not.
std::optional<std::size_t> DeathOf(const Script& script, std::size_t born) {
  for (std::size_t i = born + 1; i < script.size(); ++i) {
    if (script[i].kind == Happening::Kind::free && script[i].name == script[born].name &&
        script[i].member == script[born].member) {
      return i;
    }
  }
  return std::nullopt;
}

/// The allocations of lives that end, outside of the residents.
std::vector<std::size_t> Transients(const Script& script) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < script.size(); ++i) {
    if (script[i].kind == Happening::Kind::alloc && DeathOf(script, i)) {
      all.push_back(i);
    }
  }
  return all;
}

struct Mutant {
  Script script;
  Kind kind = Kind::missing, mirrored = Kind::extra;  ///< seen from the other side
  std::string tensor, tensor_mirrored;                ///< families
};

std::string Family(const std::string& name) { return name.starts_with("layers.") ? "layers.*.saved" : name; }

Mutant Changed(const Script& script, std::size_t born, Kind kind, Kind mirrored) {
  const std::string family = Family(script[born].name);
  return {script, kind, mirrored, family, family};
}

void Move(Script& script, std::size_t from, std::size_t to) {
  const Happening happening = script[from];
  script.erase(script.begin() + static_cast<std::ptrdiff_t>(from));
  script.insert(script.begin() + static_cast<std::ptrdiff_t>(to > from ? to - 1 : to), happening);
}

/// Behind the n-th allocation after the free, n random, but before its name is used again.
std::optional<Mutant> FreedLate(const Script& script, std::size_t born, std::mt19937& random) {
  Mutant mutant = Changed(script, born, Kind::freed_later, Kind::freed_earlier);
  std::vector<std::size_t> places;
  const std::size_t died = *DeathOf(script, born);
  for (std::size_t i = died + 1; i < script.size(); ++i) {
    if (script[i].kind == Happening::Kind::alloc) {
      if (script[i].name == script[born].name && script[i].member == script[born].member) {
        break;
      }
      places.push_back(i + 1);
    }
  }
  if (places.empty()) {
    return std::nullopt;
  }
  Move(mutant.script, died, places[random() % places.size()]);
  return mutant;
}

std::optional<Mutant> FreedEarly(const Script& script, std::size_t born, std::mt19937& random) {
  Mutant mutant = Changed(script, born, Kind::freed_earlier, Kind::freed_later);
  std::vector<std::size_t> places;
  const std::size_t died = *DeathOf(script, born);
  for (std::size_t i = born + 1; i < died; ++i) {
    if (script[i].kind == Happening::Kind::alloc) {
      places.push_back(i);
    }
  }
  if (places.empty()) {
    return std::nullopt;
  }
  Move(mutant.script, died, places[random() % places.size()]);
  return mutant;
}

std::optional<Mutant> NeverFreed(const Script& script, std::size_t born, std::mt19937&) {
  Mutant mutant = Changed(script, born, Kind::freed_later, Kind::freed_earlier);
  const std::size_t died = *DeathOf(script, born);
  for (std::size_t i = died; i < script.size(); ++i) {
    if (script[i].kind == Happening::Kind::alloc && script[i].name == script[born].name &&
        script[i].member == script[born].member) {
      return std::nullopt;  // the name is taken again
    }
  }
  mutant.script.erase(mutant.script.begin() + static_cast<std::ptrdiff_t>(died));
  return mutant;
}

std::optional<Mutant> Missing(const Script& script, std::size_t born, std::mt19937&) {
  Mutant mutant = Changed(script, born, Kind::missing, Kind::extra);
  mutant.script.erase(mutant.script.begin() + static_cast<std::ptrdiff_t>(*DeathOf(script, born)));
  mutant.script.erase(mutant.script.begin() + static_cast<std::ptrdiff_t>(born));
  return mutant;
}

std::optional<Mutant> Extra(const Script& script, std::size_t born, std::mt19937& random) {
  Mutant mutant = Changed(script, born, Kind::extra, Kind::missing);
  mutant.tensor = mutant.tensor_mirrored = "surprise";
  const std::size_t died = *DeathOf(script, born);
  mutant.script.insert(mutant.script.begin() + static_cast<std::ptrdiff_t>(died), Freed("surprise"));
  mutant.script.insert(mutant.script.begin() + static_cast<std::ptrdiff_t>(born),
                       Allocated("surprise", static_cast<std::int64_t>(5000 + random() % 1000)));
  return mutant;
}

std::optional<Mutant> WrongDtype(const Script& script, std::size_t born, std::mt19937&) {
  Mutant mutant = Changed(script, born, Kind::dtype, Kind::dtype);
  mutant.script[born].dtype = DType::fp32;
  mutant.script[born].bytes *= 2;
  return mutant;
}

std::optional<Mutant> WrongSize(const Script& script, std::size_t born, std::mt19937& random) {
  Mutant mutant = Changed(script, born, Kind::size, Kind::size);
  mutant.script[born].bytes += static_cast<std::int64_t>(1 + random() % 500);
  return mutant;
}

std::optional<Mutant> Renamed(const Script& script, std::size_t born, std::mt19937&) {
  Mutant mutant = Changed(script, born, Kind::renamed, Kind::renamed);
  mutant.tensor_mirrored = "other";
  mutant.script[*DeathOf(script, born)].name = "other";
  mutant.script[born].name = "other";
  return mutant;
}

/// The highest total, added up once more.
Bytes PeakOf(const Trace& trace) {
  Bytes total, highest;
  for (const MemoryEvent& event : trace.memory) {
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    total = event.alloc ? total + bytes : total - bytes;
    highest = std::max(highest, total);
  }
  return highest;
}

void ExpectNamed(const Script& predicted, const Script& measured, Kind kind, const std::string& tensor) {
  const Trace one = Play(predicted), other = Play(measured);
  ASSERT_EQ(Verify(one), "");
  ASSERT_EQ(Verify(other), "");
  const Result<Comparison> comparison = CompareTraces(std::vector{one}, std::vector{other});
  ASSERT_TRUE(comparison) << comparison.error().Text();
  const TraceComparison& found = comparison->Worst();
  EXPECT_TRUE(found.first.has_value());
  Bytes sum;
  bool named = false;
  std::string others;
  for (const MemoryCause& cause : found.memory) {
    sum += cause.at_peak;
    const bool is_it = cause.kind == kind && cause.tensor == tensor;
    named = named || is_it;
    if (!is_it && cause.kind != Kind::other_moment) {
      others += std::string(Name(cause.kind)) + " " + cause.tensor + "; ";
    }
  }
  EXPECT_TRUE(named) << Name(kind) << " " << tensor << " expected; found " << others;
  EXPECT_EQ(others, "");
  EXPECT_EQ(sum, PeakOf(one) - PeakOf(other));
  EXPECT_EQ(sum, found.peak_error());
}

using Mutate = std::optional<Mutant> (*)(const Script&, std::size_t, std::mt19937&);

void ExpectSeen(Mutate mutate) {
  std::mt19937 random(11);
  int tried = 0;
  for (int round = 0; round < 300 && !testing::Test::HasFailure(); ++round) {
    const Script script = RandomStep(random);
    const std::vector<std::size_t> lives = Transients(script);
    const std::optional<Mutant> mutant = mutate(script, lives[random() % lives.size()], random);
    if (mutant) {
      SCOPED_TRACE(round);
      ++tried;
      ExpectNamed(script, mutant->script, mutant->kind, mutant->tensor);
      ExpectNamed(mutant->script, script, mutant->mirrored, mutant->tensor_mirrored);
    }
  }
  EXPECT_GT(tried, 100);
}

TEST(CompareMutant, aTensorFreedLateIsNamed) { ExpectSeen(FreedLate); }
TEST(CompareMutant, aTensorFreedEarlyIsNamed) { ExpectSeen(FreedEarly); }
TEST(CompareMutant, aTensorThatIsNeverFreedIsNamed) { ExpectSeen(NeverFreed); }
TEST(CompareMutant, aMissingTransientIsNamed) { ExpectSeen(Missing); }
TEST(CompareMutant, aTensorTooManyIsNamed) { ExpectSeen(Extra); }
TEST(CompareMutant, aWrongDtypeIsNamed) { ExpectSeen(WrongDtype); }
TEST(CompareMutant, aWrongSizeIsNamed) { ExpectSeen(WrongSize); }
TEST(CompareMutant, anotherNameIsNamed) { ExpectSeen(Renamed); }

TEST(CompareMutant, theCausesOfManyChangesSumToTheErrorToo) {
  constexpr Mutate kAll[] = {FreedLate, FreedEarly, NeverFreed, Missing, Extra, WrongDtype, WrongSize, Renamed};
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Script script = RandomStep(random);
    Script changed = script;
    for (int change = 0; change < 12; ++change) {
      const std::vector<std::size_t> lives = Transients(changed);
      const auto mutant = kAll[random() % 8](changed, lives[random() % lives.size()], random);
      if (mutant && Verify(Play(mutant->script)).empty()) {
        changed = mutant->script;
      }
    }
    for (const auto& [one, other] : {std::pair(script, changed), std::pair(changed, RandomStep(random))}) {
      const Trace predicted = Play(one), measured = Play(other);
      const Result<Comparison> comparison = CompareTraces(std::vector{predicted}, std::vector{measured});
      ASSERT_TRUE(comparison) << comparison.error().Text();
      Bytes sum;
      for (const MemoryCause& cause : comparison->Worst().memory) {
        sum += cause.at_peak;
      }
      ASSERT_EQ(sum, PeakOf(predicted) - PeakOf(measured)) << round;
    }
  }
}

}  // namespace
}  // namespace tidemark::compare_mutation_test
