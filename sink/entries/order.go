package entries

import (
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

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
