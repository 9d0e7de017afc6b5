// Package entries has the rules of queries, as pure functions: which values of a document an index has, how its entries
// are written so that Redis orders them, and for which documents a condition holds.
//
// A value is a string, a number, a boolean or null, or an element of an array of up to [MaxElements] of these. What is
// longer than [MaxValue] bytes, or is anything else, is no value: no condition holds for it, whether an index is used or not.
// Values are ordered by their types, null, boolean, number, string; numbers are compared as 64-bit floating point numbers,
// strings by their bytes.
package entries

const (
	MaxElements = 32  // of an array
	MaxValue    = 255 // bytes of a string
)

// Value is a value of a document.
type Value struct {
	Kind   Kind
	Bool   bool
	Number float64
	Text   string
}

// Kind is the type of a value. Values of a lower kind come first.
type Kind byte

// The kinds. Of LeftOut is the one entry of a document whose value at the pointer is not indexed.
const (
	LeftOut Kind = iota
	Null
	Boolean
	Number
	String
)

// Of returns the values that a document has at each of some pointers (RFC 6901): each list is in order and has no value
// twice. It is empty if there is nothing at the pointer, and has one of LeftOut alone if what is there is not indexed.
func Of(body []byte, pointers []string) ([][]Value, error) { panic("not built yet") }

// CheckPointer returns an error, a sentence for the client, unless a pointer may be indexed.
func CheckPointer(pointer string) error { panic("not built yet") }

// Member is the entry of a document with a value in an index: a text that Redis orders by value, then by id.
func Member(v Value, id string) string { panic("not built yet") }

// Parse reads a member.
func Parse(member string) (v Value, id string, err error) { panic("not built yet") }

// Condition is a condition on the values at a pointer. It holds for a document if it holds for one of them. The zero
// Condition of a pointer holds for every value.
type Condition struct {
	Pointer string
	// In has the values of which one is to be equal, in order and each once; nil if the condition is not of this kind.
	In []Value
	// Over and Under are the ends of a range, nil if it has none. Values of another type are in no range.
	Over, Under           *Value
	OverEqual, UnderEqual bool
	// Prefix is what a string is to begin with; nil if the condition is not of this kind.
	Prefix *string
}

// Holds reports whether the condition holds for one value.
func (c Condition) Holds(v Value) bool { panic("not built yet") }

// HoldsFor reports whether the condition holds for one of the values at its pointer.
func (c Condition) HoldsFor(values []Value) bool { panic("not built yet") }

// Range is a part of an index: the members m with From <= m < To, by their bytes. Before every id of a value v comes
// Member(v, "").
type Range struct{ From, To string }

// Ranges are the parts of an index of the pointer for whose values the condition holds, in the order of the index. They
// do not overlap.
func (c Condition) Ranges() []Range { panic("not built yet") }

// Order is the order in which a query returns documents.
type Order struct {
	Pointer    string // "" for one of the others
	Descending bool
	ByDeadline bool
	ByID       bool
}

// Query is what a query selects, and in which order.
type Query struct {
	Where []Condition // in the order of their pointers, one for each
	Order Order
}

// ParseWhere reads the conditions of a request, in the order of their pointers. Its error is a sentence for the client.
func ParseWhere(where map[string][]byte) ([]Condition, error) { panic("not built yet") }

// ParseOrder reads the order of a request. Its error is a sentence for the client.
func ParseOrder(order string) (Order, error) { panic("not built yet") }

// ParseText reads a condition as people type it: customer=c1, price>=10, seat.row^=A, status=new,paid, open=true,
// note=null or /seat/row="1" (a JSON string, where the text would be another type). It returns the pointer and the
// condition as the property where of a request has them. Its error is a sentence for the person.
func ParseText(text string) (pointer string, condition []byte, err error) { panic("not built yet") }

// Merge joins the conditions of several texts into the property where of a request: two ends of one range become one
// condition. Its error is a sentence for the person.
func Merge(texts []string) (where map[string][]byte, err error) { panic("not built yet") }
