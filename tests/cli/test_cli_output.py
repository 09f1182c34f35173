"""How all commands print."""

from rich.console import Console

from tacit.cli.terminal.output import plain_table


def test_a_heading_is_not_wrapped_at_the_width_of_the_columns_below_it():
    heading = "a heading that is wider than the one narrow column of its table"
    table = plain_table(heading)
    table.add_column("n")
    table.add_row("1")
    screen = Console(width=80)
    with screen.capture() as shown:
        screen.print(table)
    assert [line.strip() for line in shown.get().splitlines()] == [heading, "n", "─", "1"]
