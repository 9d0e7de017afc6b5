package cli

import (
	"errors"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
)

// Collection is the argument of a command about a collection.
type Collection struct {
	Name string `arg:"" name:"collection"`
}

// Check returns an error if the name is not valid.
func (c Collection) Check() error { return CheckCollection(c.Name) }

// CheckCollection returns an error if the name of a collection is not valid.
func CheckCollection(name string) error { return output.Usage(wire.CheckCollection(name)) }

// Target is the arguments of a command about a document.
type Target struct {
	Collection string `arg:""`
	ID         string `arg:"" name:"id"`
}

func (t Target) String() string { return t.Collection + "/" + output.Name(t.ID) }

// Check returns an error if a name is not valid.
func (t Target) Check() error {
	return output.Usage(errors.Join(wire.CheckCollection(t.Collection), wire.CheckID(t.ID)))
}
