// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <vector>

namespace tidemark {

/// Whether this build has the address or the thread sanitizer, which bring their own malloc and make everything twenty
/// times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // clang's way to say the same
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// Of cases that are alike in what they read and write all; under a sanitizer, which looks for nothing else, the last.
template <class T>
std::vector<T> AllOrLast(std::initializer_list<T> cases) {
  return kSanitized ? std::vector<T>{*(cases.end() - 1)} : std::vector<T>(cases);
}

}  // namespace tidemark
