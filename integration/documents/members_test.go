package documents_test

import (
	"reflect"
	"strings"
)

// members are the names in JSON of the members of a body.
func members(body any) (names []string) {
	kind := reflect.TypeOf(body)
	for i := range kind.NumField() {
		if name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
