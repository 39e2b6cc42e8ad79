"""Commands about models themselves: what there is to get, and a talk with one."""
