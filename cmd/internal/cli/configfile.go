package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed18712806/lapse/sink/wire"
)

// namedConfig is the configuration of a collection, as a file has it.
type namedConfig struct {
	Name string
	wire.Config
	pauses bool // the file says whether it is paused
}

// writeConfigs writes configurations as YAML: a map of names, as readConfigs reads them.
func writeConfigs(out io.Writer, all []namedConfig) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range all {
		text, err := json.Marshal(one.Published())
		if err != nil {
			return err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
			return err
		}
		config := document.Content[0]
		config.Style = 0
		for _, node := range config.Content {
			if node.Kind == yaml.ScalarNode {
				node.Style = 0
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: one.Name}, config)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "{}")
		return err
	}
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(root), encoder.Close())
}

// readConfigs reads configurations: YAML or JSON, one or several documents, each of which is a map of the names of
// collections. They come in the order of their names. An error names the line.
func readConfigs(in io.Reader) (all []namedConfig, err error) {
	lines := make(map[string]int)
	decoder := yaml.NewDecoder(in)
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		root := document.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document
		}
		if root.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: a map from the names of collections to their configurations is needed, as \"lapse config --all -o yaml\" prints it", root.Line)
		}
		for i := 0; i < len(root.Content); i += 2 {
			name, value := root.Content[i], root.Content[i+1]
			if err := wire.CheckCollection(name.Value); err != nil {
				return nil, fmt.Errorf("line %d: %w", name.Line, err)
			}
			if first, twice := lines[name.Value]; twice {
				return nil, fmt.Errorf("line %d: collection %s is in line %d too: leave one of them out", name.Line, name.Value, first)
			}
			lines[name.Value] = name.Line
			one, err := readConfig(name.Value, value)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b namedConfig) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// readConfig reads the configuration of a collection.
func readConfig(name string, node *yaml.Node) (namedConfig, error) {
	one := namedConfig{Name: name}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return one, fmt.Errorf("line %d: the configuration of %s is not a map: use members such as defaultTtl, or {} for the defaults", node.Line, name)
	}
	members, given := make(map[string]any), make(map[string]bool)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(wire.ConfigProperties, key.Value):
			return one, fmt.Errorf("line %d: %s of %s is not known%s: a configuration has %s", key.Line, wire.Quote(key.Value), name,
				didYouMean(key.Value, wire.ConfigProperties), strings.Join(wire.ConfigProperties, ", "))
		case given[key.Value]:
			return one, fmt.Errorf("line %d: %s of %s comes twice: leave one of them out", key.Line, key.Value, name)
		}
		given[key.Value] = true
		var content any
		if err := value.Decode(&content); err != nil {
			return one, fmt.Errorf("line %d: %s of %s is not valid: %w", value.Line, key.Value, name, err)
		}
		if content == nil && key.Value != "defaultTtl" {
			continue // as if it were left out
		}
		members[key.Value] = content
		text, err := json.Marshal(map[string]any{key.Value: content})
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(text)).Decode(&wire.Config{})
		}
		if err != nil {
			return one, fmt.Errorf("line %d: %s of %s is not valid: use %s", value.Line, key.Value, name, memberUse(key.Value))
		}
	}
	text, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(text, &one.Config)
	}
	if one.IndexingMode == "" {
		one.IndexingMode = wire.Consistent
	}
	if one.EventBody != nil && *one.EventBody {
		one.EventBody = nil
	}
	one.pauses = given["paused"]
	return one, err
}

// memberUse says what a member may be.
func memberUse(member string) string {
	switch member {
	case "defaultTtl":
		return "a whole number of seconds, -1, or null"
	case "indexingMode":
		return "consistent, lazy or none"
	case "minTtl", "maxTtl", "maxLife":
		return "a whole number of seconds"
	case "slideOnRead":
		return "true, false, or a number over 0 and under 1"
	case "warnBefore":
		return "a list of whole numbers of seconds"
	case "indexes":
		return "a list of JSON pointers such as /customer"
	}
	return "true or false"
}
