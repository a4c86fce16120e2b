// The pickle opcodes that the reader and the writer know (CPython's Lib/pickletools.py). The reader
// refuses Long4, FrozenSet, NewObjEx and ByteArray8; it knows them only for its error messages.
#pragma once

#include <cstdint>

namespace muster::pickle {

enum class Opcode : std::uint8_t {
  Mark = '(',
  EmptyTuple = ')',
  Stop = '.',
  BinBytes = 'B',
  ShortBinBytes = 'C',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  None = 'N',
  BinFloat = 'G',
  BinPersId = 'Q',
  Reduce = 'R',
  BinUnicode = 'X',
  EmptyList = ']',
  Append = 'a',
  Build = 'b',
  Global = 'c',
  Appends = 'e',
  BinGet = 'h',
  LongBinGet = 'j',
  BinPut = 'q',
  LongBinPut = 'r',
  SetItem = 's',
  Tuple = 't',
  SetItems = 'u',
  EmptyDict = '}',
  Proto = 0x80,
  NewObj = 0x81,
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  NewTrue = 0x88,
  NewFalse = 0x89,
  Long1 = 0x8a,
  Long4 = 0x8b,
  ShortBinUnicode = 0x8c,
  BinUnicode8 = 0x8d,
  BinBytes8 = 0x8e,
  EmptySet = 0x8f,
  AddItems = 0x90,
  FrozenSet = 0x91,
  NewObjEx = 0x92,
  StackGlobal = 0x93,
  Memoize = 0x94,
  Frame = 0x95,
  ByteArray8 = 0x96,
};

}  // namespace muster::pickle
