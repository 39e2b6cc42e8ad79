"""Commands about models themselves: downloading, chatting with and serving them."""
