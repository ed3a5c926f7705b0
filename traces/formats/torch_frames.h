// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark {

/// A line of a stack as PyTorch records it: of Python, or, with stacks="all", of C++.
struct TorchFrame {
  std::string_view function, file;
  std::int64_t line = 0;
};

/// What a frame tells about who wants the memory, more being better: nothing (the allocator itself), some function of
/// C++, PyTorch's or Python's own libraries, the user's program.
enum class FrameTelling : std::uint8_t { nothing, cpp, library, own };

FrameTelling TellingOf(const TorchFrame& frame);

/// "model.py:120 forward"; a function alone where the frame has no Python file. Valid UTF-8, of moderate length.
std::string PlaceName(const TorchFrame& frame);

/// The text, cut to what a name may be, as UTF-8: a pickle may hold lone surrogates, a hostile one anything.
std::string SoundName(std::string_view text);

}  // namespace tidemark
