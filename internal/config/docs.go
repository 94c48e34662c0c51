package config

import (
	"fmt"
	"strings"
)

// Markdown renders all tables as the reference page of the docs.
func Markdown() string {
	var w strings.Builder
	w.WriteString("# Configuration\n\nEvery property, as Apache Kafka 4.4 defines it, and our own (they begin with `highwater.`). This page is generated.\n\n" +
		"Effect tells what setting a key does in this version: most are in force; some are taken, checked and shown as Kafka does, but nothing depends on\n" +
		"them, which a node says once when it starts; a few end the start, because passing them over would be less safe than what\n" +
		"they ask for. `highwater config check FILE` explains a file.\n")
	effect := func(k *Key) string {
		if k.Why == "" {
			return k.Effect.String()
		}
		return k.Effect.String() + ": " + k.Why
	}
	for _, t := range []struct {
		title, intro string
		table        *Table
	}{
		{"Brokers and controllers", "In `server.properties`. Update tells how a key can be changed while the node runs: per-broker for one broker, cluster-wide also as the default of all.", BrokerTable},
		{"Dynamic broker configs", "Only by `kafka-configs --entity-type brokers`.", BrokerQuotaTable},
		{"Topics", "Default is what holds if neither the topic nor one of the broker's keys that stand for it is set.", TopicTable},
		{"Groups", "", GroupTable},
		{"Client metrics", "", ClientMetricsTable},
		{"Quotas of users and clients", "", UserQuotaTable},
		{"Quotas of addresses", "", IPQuotaTable},
	} {
		fmt.Fprintf(&w, "\n## %s\n\n", t.title)
		if t.intro != "" {
			w.WriteString(t.intro + "\n\n")
		}
		broker := t.table == BrokerTable
		head := "| key | type | default | valid | "
		if broker {
			head += "update | "
		} else {
			head += "broker key | "
		}
		w.WriteString(head + "effect | what |\n|---|---|---|---|---|---|---|\n")
		for _, k := range t.table.Sorted() {
			if k.Internal {
				continue
			}
			def := "`" + k.Default + "`"
			switch {
			case k.Required:
				def = "required"
			case k.Null:
				def = "null"
			case k.Default == "":
				def = `""`
			}
			valid := ""
			if k.Check != nil {
				valid = strings.ReplaceAll(k.Check.String(), "|", "\\|")
			}
			third := k.Update.String()
			if !broker {
				var s []string
				for _, x := range k.Synonyms {
					s = append(s, "`"+x.Name+"`")
				}
				third = strings.Join(s, ", ")
			}
			doc := k.Doc
			if k.Deprecated {
				doc = strings.TrimSpace("Deprecated. " + doc)
			}
			fmt.Fprintf(&w, "| `%s` | %s | %s | %s | %s | %s | %s |\n", k.Name, strings.ToLower(k.Type.String()), def, valid, third, effect(k), doc)
		}
	}
	return w.String()
}
