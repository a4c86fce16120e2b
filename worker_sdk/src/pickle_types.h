// The names of element types in pickles of tensors. Private.
#pragma once

#include <string_view>
#include <utility>

#include <c10/core/ScalarType.h>

namespace muster {

inline constexpr std::pair<std::string_view, c10::ScalarType> kStorageTypes[] = {
    {"FloatStorage", c10::ScalarType::Float},
    {"DoubleStorage", c10::ScalarType::Double},
    {"HalfStorage", c10::ScalarType::Half},
    {"BFloat16Storage", c10::ScalarType::BFloat16},
    {"LongStorage", c10::ScalarType::Long},
    {"IntStorage", c10::ScalarType::Int},
    {"ShortStorage", c10::ScalarType::Short},
    {"CharStorage", c10::ScalarType::Char},
    {"ByteStorage", c10::ScalarType::Byte},
    {"BoolStorage", c10::ScalarType::Bool},
    {"ComplexFloatStorage", c10::ScalarType::ComplexFloat},
    {"ComplexDoubleStorage", c10::ScalarType::ComplexDouble},
};

}  // namespace muster
