// Package entries has the rules of queries, as pure functions: which values of a document an index has, how its entries
// are written so that Redis orders them, and for which documents a condition holds.
//
// # Values
//
// A value is a string, a number, a boolean or null, or an element of an array of up to [MaxElements] of these. An
// array has each of its values once. What is longer than [MaxValue] bytes, or is anything else, is no value: no
// condition holds for it, whether an index is used or not. Such a document has one entry of the kind [LeftOut], so
// that lapse can count what an index leaves out.
//
// Values are ordered by their types, null, boolean, number, string. Numbers are compared as 64-bit floating point
// numbers, strings by their bytes. If an object has a name twice, the last member counts, as in encoding/json.
//
// # Entries
//
// An index is a sorted set of members, all of score 0, which Redis orders by their bytes. [Member] writes the kind,
// then the value, then the id, so that the order of the bytes is that of kind, value and id. What a condition holds
// for is then one or several parts of the set: [Condition.Ranges].
//
// # Requests
//
// [ParseWhere] and [ParseOrder] read the properties where and order of a request. [ParseText] and [Merge] turn what
// people type on a command line or in a field into the property where; [PointerOf] and [OrderOf] do this for pointers
// and orders. Every error is a sentence that says what is wrong and what is allowed.
package entries
