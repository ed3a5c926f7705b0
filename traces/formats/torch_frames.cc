// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "traces/utf8.h"

namespace tidemark {
namespace {

bool HasAny(std::string_view text, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

/// Python files of PyTorch: those folders and files of the package "torch" that call user's code or are called by it.
bool IsOfTorch(std::string_view file) {
  constexpr std::array<std::string_view, 18> kParts = {
      "_",      "nn/",      "optim/",    "autograd/",  "utils/",           "distributed/", "cuda/",         "fx/",
      "amp/",   "jit/",     "profiler/", "functional", "multiprocessing/", "library",      "serialization", "storage",
      "random", "overrides"};
  constexpr std::string_view kPackage = "torch/";
  for (std::size_t at = file.find(kPackage); at != std::string_view::npos; at = file.find(kPackage, at + 1)) {
    const std::string_view rest = file.substr(at + kPackage.size());
    if ((at == 0 || file[at - 1] == '/') &&
        std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) { return rest.starts_with(part); })) {
      return true;
    }
  }
  return false;
}

bool IsOfPython(std::string_view file) {
  const bool installed = HasAny(file, std::array<std::string_view, 2>{"site-packages/", "dist-packages/"});
  return file.starts_with("<frozen") || (!installed && file.find("/lib/python") != std::string_view::npos);
}

bool IsPython(const TorchFrame& frame) { return frame.file.ends_with(".py") || frame.file.starts_with('<'); }

/// Files are told apart by their ends and functions by their beginnings, however long a hostile file makes them.
TorchFrame Moderate(TorchFrame frame) {
  constexpr std::size_t kLongest = 1000;
  frame.function = frame.function.substr(0, kLongest);
  frame.file = frame.file.substr(frame.file.size() - std::min(frame.file.size(), kLongest));
  return frame;
}

}  // namespace

FrameTelling TellingOf(const TorchFrame& whole) {
  constexpr std::array<std::string_view, 10> kPlumbing = {
      "CapturedTraceback", "unwind",          "gather_with_cpp",  "CachingAllocator", "at::detail::empty",
      "at::native::empty", "at::_ops::empty", "c10::StorageImpl", "wrapper_CUDA_",    "at::TensorBase"};
  const TorchFrame frame = Moderate(whole);
  if (IsPython(frame)) {
    return IsOfTorch(frame.file) || IsOfPython(frame.file) ? FrameTelling::library : FrameTelling::own;
  }
  const bool own_words = frame.line == 0 && !frame.file.empty() && frame.file != "??" &&
                         frame.file.find('/') == std::string_view::npos;  // some other program's, not a stack's
  if (own_words) {
    return FrameTelling::own;
  }
  const bool plumbing = frame.function.empty() || frame.function == "??" || HasAny(frame.function, kPlumbing);
  return plumbing ? FrameTelling::nothing : FrameTelling::cpp;
}

std::string PlaceName(const TorchFrame& whole) {
  const TorchFrame frame = Moderate(whole);
  if (IsPython(frame)) {
    return SoundName(fmt::format("{}:{} {}", frame.file.substr(frame.file.rfind('/') + 1), frame.line, frame.function));
  }
  const bool cpp = frame.function.find("::") != std::string_view::npos;
  return SoundName(cpp ? frame.function.substr(0, frame.function.find('(')) : frame.function);
}

std::string SoundName(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string_view begin = text.substr(0, kLongest);
  const auto goes_on = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; };
  constexpr std::size_t kRest = 3;  // of a character
  while (begin.size() < text.size() && goes_on(text[begin.size()]) && begin.size() > kLongest - kRest) {
    begin.remove_suffix(1);
  }
  return Utf8(std::string(begin));
}

}  // namespace tidemark
