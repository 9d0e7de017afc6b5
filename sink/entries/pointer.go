package entries

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

// MaxTokens is the most tokens of a pointer.
const MaxTokens = 16

// usePointer says which pointers are allowed.
var usePointer = fmt.Sprintf("use a JSON pointer such as /customer or /seat/row, with at most %d names and %d bytes.",
	MaxTokens, wire.MaxPointer)

// CheckPointer returns an error, a sentence for the client, unless a pointer may be indexed.
func CheckPointer(pointer string) error {
	quoted := wire.Quote(pointer)
	switch {
	case pointer == "":
		return wrong("the pointer is empty: %s", usePointer)
	case len(pointer) > wire.MaxPointer:
		return wrong("pointer %s is %d bytes long: %s", quoted, len(pointer), usePointer)
	case !utf8.ValidString(pointer):
		return wrong("pointer %s is not UTF-8: %s", quoted, usePointer)
	case pointer[0] != '/':
		return wrong("pointer %s does not begin with /: %s", quoted, usePointer)
	}
	if n := strings.Count(pointer, "/"); n > MaxTokens {
		return wrong("pointer %s has %d names: %s", quoted, n, usePointer)
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && !strings.HasPrefix(pointer[i:], "~0") && !strings.HasPrefix(pointer[i:], "~1") {
			return wrong("pointer %s has a ~ that is not ~0 or ~1: write ~0 for ~ and ~1 for / in a name.", quoted)
		}
	}
	return nil
}

var (
	escapes   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapes = strings.NewReplacer("~0", "~", "~1", "/")
)

// unescape returns the name that a token of a pointer means.
func unescape(token string) string { return unescapes.Replace(token) }

// PointerOf returns the pointer that people mean by a text: the text itself if it begins with /, otherwise that of
// names with dots between them, so that seat.row is /seat/row. Its error is a sentence for the person.
func PointerOf(text string) (pointer string, err error) {
	if strings.HasPrefix(text, "/") {
		return text, CheckPointer(text)
	}
	switch {
	case text == "":
		return "", wrong("the name is empty: write a name such as customer, seat.row or /seat/row.")
	case strings.Contains(text, "/"):
		return "", wrong("%s has a / but does not begin with it: write %s.", wire.Quote(text), wire.Quote("/"+text))
	}
	names := strings.Split(text, ".")
	for i, name := range names {
		if name == "" {
			return "", wrong("%s has an empty name: write names with a dot between them, such as seat.row.",
				wire.Quote(text))
		}
		names[i] = escapes.Replace(name)
	}
	pointer = "/" + strings.Join(names, "/")
	return pointer, CheckPointer(pointer)
}

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

// descending is before the pointer of an order that has the greatest value first.
const descending = "-"

// ParseOrder reads the order of a request. Its error is a sentence for the client.
func ParseOrder(order string) (Order, error) {
	switch wire.Order(order) {
	case "":
		return Order{}, nil
	case wire.ByDeadline:
		return Order{ByDeadline: true}, nil
	case wire.ByID:
		return Order{ByID: true}, nil
	}
	pointer, isDescending := strings.CutPrefix(order, descending)
	if !strings.HasPrefix(pointer, "/") {
		return Order{}, wrong(
			"order %s is not valid: use %s, %s, a pointer such as /price, or -/price for the greatest first.",
			wire.Quote(order), wire.ByDeadline, wire.ByID)
	}
	if err := CheckPointer(pointer); err != nil {
		return Order{}, wrong("order %s: %v", wire.Quote(order), err)
	}
	return Order{Pointer: pointer, Descending: isDescending}, nil
}

// OrderOf returns the order of a request that people mean by a text: deadline, id, a pointer, or names as in
// [PointerOf], with - before it for the greatest value first. Its error is a sentence for the person.
func OrderOf(text string) (order string, err error) {
	switch wire.Order(text) {
	case "", wire.ByDeadline, wire.ByID:
		return text, nil
	}
	name, isDescending := strings.CutPrefix(text, descending)
	if isDescending && (wire.Order(name) == wire.ByDeadline || wire.Order(name) == wire.ByID) {
		return "", wrong("order %s is not valid: %s has one direction only. "+
			"For a member %s of the documents write -/%s.", wire.Quote(text), name, name, name)
	}
	pointer, err := PointerOf(name)
	if err != nil {
		return "", wrong("order %s: %v", wire.Quote(text), err)
	}
	if isDescending {
		pointer = descending + pointer
	}
	return pointer, nil
}
