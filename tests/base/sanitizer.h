// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace tidemark
